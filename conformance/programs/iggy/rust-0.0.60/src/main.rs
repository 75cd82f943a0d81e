// The crate 0.0.60 (dialect D0), which has no login: `PROGRAM work|read HOST:PORT`, as scenario.rs says.
use iggy::client::*;
use iggy::consumer::Consumer;
use iggy::identifier::Identifier;
use iggy::messages::{poll_messages::*, send_messages::*};
use iggy::models::header::{HeaderKey, HeaderValue};
use iggy::tcp::client::TcpClient;
use iggy::tcp::config::TcpClientConfig;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
fn id(n: u32) -> Identifier {
    Identifier::numeric(n).unwrap()
}
fn named(n: &str) -> Identifier {
    Identifier::named(n).unwrap()
}
async fn client(addr: &str) -> TcpClient {
    let mut c = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: addr.to_string(),
        ..Default::default()
    }))
    .unwrap();
    c.connect().await.unwrap();
    c
}
static GOOD: AtomicU32 = AtomicU32::new(0);
static BAD: AtomicU32 = AtomicU32::new(0);
fn check(name: &str, good: bool) {
    (if good { &GOOD } else { &BAD }).fetch_add(1, Ordering::Relaxed);
    if !good {
        println!("BAD {}", name)
    }
}
async fn poll(
    c: &TcpClient,
    consumer: Consumer,
    topic: u32,
    part: Option<u32>,
    strategy: PollingStrategy,
    count: u32,
    auto_commit: bool,
) -> Result<Vec<(u64, String)>, iggy::error::Error> {
    let p = c
        .poll_messages(&PollMessages {
            consumer,
            stream_id: id(61),
            topic_id: id(topic),
            partition_id: part,
            strategy,
            count,
            auto_commit,
        })
        .await?;
    Ok(p.messages.iter().map(|m| (m.offset, String::from_utf8_lossy(&m.payload).to_string())).collect())
}
#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let addr = arguments[2].clone();
    let c = client(&addr).await;
    if arguments[1] == "read" {
        let p = c
            .poll_messages(&PollMessages {
                consumer: Consumer::new(98),
                stream_id: named("shared"),
                topic_id: named("all"),
                partition_id: Some(1),
                strategy: PollingStrategy::first(),
                count: 1000,
                auto_commit: false,
            })
            .await
            .unwrap();
        for m in p.messages {
            println!("{}", String::from_utf8_lossy(&m.payload));
        }
        return;
    }
    check("ping", c.ping(&Default::default()).await.is_ok());
    use iggy::streams::{create_stream::*, delete_stream::*, get_stream::*, get_streams::*};
    use iggy::topics::{create_topic::*, delete_topic::*, get_topic::*, get_topics::*};
    let e = c.get_stream(&GetStream { stream_id: id(61) }).await;
    check("stream missing", matches!(e, Err(iggy::error::Error::InvalidResponse(1009, ..))));
    check(
        "create stream",
        c.create_stream(&CreateStream { stream_id: 61, name: "Rust Stream".into() }).await.is_ok(),
    );
    let e = c.create_stream(&CreateStream { stream_id: 61, name: "x".into() }).await;
    check("stream id taken", matches!(e, Err(iggy::error::Error::InvalidResponse(1011, ..))));
    let e = c.create_stream(&CreateStream { stream_id: 62, name: "rust stream".into() }).await;
    check("stream name taken", matches!(e, Err(iggy::error::Error::InvalidResponse(1012, ..))));
    let s = c.get_stream(&GetStream { stream_id: named("rust.stream") }).await.unwrap();
    check("stream", s.id == 61 && s.name == "rust.stream" && s.topics_count == 0);
    check("streams", c.get_streams(&GetStreams {}).await.unwrap().iter().any(|s| s.id == 61));
    check(
        "create topic",
        c.create_topic(&CreateTopic {
            stream_id: id(61),
            topic_id: 1,
            partitions_count: 3,
            message_expiry: Some(3600),
            name: "events".into(),
        })
        .await
        .is_ok(),
    );
    let t = c.get_topic(&GetTopic { stream_id: id(61), topic_id: named("events") }).await.unwrap();
    check(
        "topic",
        t.id == 1 && t.partitions_count == 3 && t.message_expiry == Some(3600) && t.partitions.len() == 3,
    );
    check("topics", c.get_topics(&GetTopics { stream_id: id(61) }).await.unwrap().len() == 1);
    let e = c.get_topic(&GetTopic { stream_id: id(61), topic_id: id(9) }).await;
    check("topic missing", matches!(e, Err(iggy::error::Error::InvalidResponse(2010, ..))));
    let mut headers = HashMap::new();
    headers.insert(HeaderKey::new("kind").unwrap(), HeaderValue::from_uint32(7).unwrap());
    headers.insert(HeaderKey::new("f").unwrap(), HeaderValue::from_float64(1.5).unwrap());
    for n in 0..5u32 {
        let mut m = SendMessages {
            stream_id: id(61),
            topic_id: id(1),
            partitioning: Partitioning::partition_id(1),
            messages: vec![Message::new(
                Some(n as u128 + 1),
                format!("m{}", n).into_bytes().into(),
                Some(
                    headers
                        .iter()
                        .map(|(k, v)| (k.clone(), HeaderValue { kind: v.kind, value: v.value.clone() }))
                        .collect(),
                ),
            )],
        };
        check("send", c.send_messages(&mut m).await.is_ok());
    }
    let p = c
        .poll_messages(&PollMessages {
            consumer: Consumer::new(1),
            stream_id: id(61),
            topic_id: id(1),
            partition_id: Some(1),
            strategy: PollingStrategy::offset(3),
            count: 2,
            auto_commit: false,
        })
        .await
        .unwrap();
    check(
        "poll offset",
        p.partition_id == 1
            && p.current_offset == 4
            && p.messages.len() == 2
            && p.messages[0].offset == 3
            && p.messages[0].id == 4
            && &p.messages[0].payload[..] == b"m3",
    );
    let h = p.messages[0].headers.as_ref().unwrap();
    check(
        "headers",
        h.len() == 2
            && h[&HeaderKey::new("kind").unwrap()].as_uint32().unwrap() == 7
            && h[&HeaderKey::new("f").unwrap()].as_float64().unwrap() == 1.5,
    );
    check("state", p.messages[0].state == iggy::models::messages::MessageState::Available);
    let ts = p.messages[0].timestamp;
    let one = || Consumer::new(1);
    check(
        "first",
        poll(&c, one(), 1, Some(1), PollingStrategy::first(), 2, false).await.unwrap()
            == vec![(0, "m0".into()), (1, "m1".into())],
    );
    check(
        "last",
        poll(&c, one(), 1, Some(1), PollingStrategy::last(), 2, false).await.unwrap()
            == vec![(3, "m3".into()), (4, "m4".into())],
    );
    check(
        "timestamp",
        poll(&c, one(), 1, Some(1), PollingStrategy::timestamp(ts), 9, false).await.unwrap()[0].0 == 3,
    );
    check("next", poll(&c, one(), 1, Some(1), PollingStrategy::next(), 3, true).await.unwrap().len() == 3);
    check(
        "next rest",
        poll(&c, one(), 1, Some(1), PollingStrategy::next(), 3, true).await.unwrap().len() == 2,
    );
    check(
        "next end",
        poll(&c, one(), 1, Some(1), PollingStrategy::next(), 3, true).await.unwrap().is_empty(),
    );
    let e = poll(&c, one(), 1, Some(9), PollingStrategy::first(), 1, false).await;
    check("partition missing", matches!(e, Err(iggy::error::Error::InvalidResponse(3007, ..))));
    let e = poll(&c, one(), 1, None, PollingStrategy::first(), 1, false).await;
    check("no partition", matches!(e, Err(iggy::error::Error::InvalidResponse(3007, ..))));
    use iggy::consumer_offsets::{get_consumer_offset::*, store_consumer_offset::*};
    let get = |consumer: Consumer, part| GetConsumerOffset {
        consumer,
        stream_id: id(61),
        topic_id: id(1),
        partition_id: part,
    };
    let o = c.get_consumer_offset(&get(one(), Some(1))).await.unwrap();
    check("offset", o.stored_offset == 4 && o.current_offset == 4 && o.partition_id == 1);
    check(
        "offset none",
        c.get_consumer_offset(&get(Consumer::new(99), Some(1))).await.unwrap().stored_offset == 0,
    );
    check(
        "store",
        c.store_consumer_offset(&StoreConsumerOffset {
            consumer: one(),
            stream_id: id(61),
            topic_id: id(1),
            partition_id: Some(1),
            offset: 1,
        })
        .await
        .is_ok(),
    );
    check(
        "after store",
        poll(&c, one(), 1, Some(1), PollingStrategy::next(), 1, false).await.unwrap()
            == vec![(2, "m2".into())],
    );
    let e = c
        .store_consumer_offset(&StoreConsumerOffset {
            consumer: one(),
            stream_id: id(61),
            topic_id: id(1),
            partition_id: Some(1),
            offset: 99,
        })
        .await;
    check("store beyond", matches!(e, Err(iggy::error::Error::InvalidResponse(4100, ..))));
    // keys and turns
    for (key, part) in [("key-1", 1u32), ("hello", 2)] {
        let before = c.get_topic(&GetTopic { stream_id: id(61), topic_id: id(1) }).await.unwrap();
        let mut m = SendMessages {
            stream_id: id(61),
            topic_id: id(1),
            partitioning: Partitioning::messages_key_str(key).unwrap(),
            messages: vec![Message::new(None, "k".as_bytes().into(), None)],
        };
        check("send key", c.send_messages(&mut m).await.is_ok());
        let after = c.get_topic(&GetTopic { stream_id: id(61), topic_id: id(1) }).await.unwrap();
        let count = |t: &iggy::models::topic::TopicDetails| {
            t.partitions.iter().find(|p| p.id == part).unwrap().messages_count
        };
        check("key partition", count(&after) == count(&before) + 1);
    }
    check(
        "topic 2",
        c.create_topic(&CreateTopic {
            stream_id: id(61),
            topic_id: 2,
            partitions_count: 3,
            message_expiry: None,
            name: "turns".into(),
        })
        .await
        .is_ok(),
    );
    for n in 0..4 {
        let mut m = SendMessages {
            stream_id: id(61),
            topic_id: id(2),
            partitioning: Partitioning::balanced(),
            messages: vec![
                Message::new(None, format!("b{}", n).into_bytes().into(), None),
                Message::new(None, "x".into(), None),
            ],
        };
        check("send balanced", c.send_messages(&mut m).await.is_ok());
    }
    check(
        "turns",
        poll(&c, one(), 2, Some(1), PollingStrategy::first(), 9, false)
            .await
            .unwrap()
            .iter()
            .map(|m| m.1.clone())
            .collect::<Vec<_>>()
            == vec!["b0", "x", "b3", "x"],
    );
    // groups
    use iggy::consumer_groups::{
        create_consumer_group::*, delete_consumer_group::*, get_consumer_group::*, get_consumer_groups::*,
        join_consumer_group::*, leave_consumer_group::*,
    };
    let gg = || GetConsumerGroup { stream_id: id(61), topic_id: id(2), consumer_group_id: 7 };
    let e = c.get_consumer_group(&gg()).await;
    check("group missing", matches!(e, Err(iggy::error::Error::InvalidResponse(5000, ..))));
    check(
        "create group",
        c.create_consumer_group(&CreateConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await
        .is_ok(),
    );
    let e = c
        .create_consumer_group(&CreateConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await;
    check("group exists", matches!(e, Err(iggy::error::Error::InvalidResponse(5001, ..))));
    let e = poll(&c, Consumer::group(7), 2, None, PollingStrategy::next(), 1, true).await;
    check("not joined", matches!(e, Err(iggy::error::Error::InvalidResponse(5002, ..))));
    check(
        "join",
        c.join_consumer_group(&JoinConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await
        .is_ok(),
    );
    let c2 = client(&addr).await;
    check(
        "join 2",
        c2.join_consumer_group(&JoinConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await
        .is_ok(),
    );
    let g = c.get_consumer_group(&gg()).await.unwrap();
    check(
        "group",
        g.id == 7
            && g.members_count == 2
            && g.partitions_count == 3
            && g.members.iter().map(|m| m.partitions.len()).sum::<usize>() == 3,
    );
    check(
        "groups",
        c.get_consumer_groups(&GetConsumerGroups { stream_id: id(61), topic_id: id(2) }).await.unwrap().len()
            == 1,
    );
    let me = c.get_me(&Default::default()).await.unwrap();
    check("me", me.consumer_groups_count == 1 && me.transport == "TCP");
    check(
        "get client",
        c.get_client(&iggy::system::get_client::GetClient { client_id: me.id }).await.unwrap().id == me.id,
    );
    check("clients", c.get_clients(&Default::default()).await.unwrap().len() >= 2);
    let mut all = vec![];
    for _ in 0..4 {
        all.extend(poll(&c, Consumer::group(7), 2, None, PollingStrategy::next(), 9, true).await.unwrap());
        all.extend(poll(&c2, Consumer::group(7), 2, None, PollingStrategy::next(), 9, true).await.unwrap());
    }
    check("group read all once", all.len() == 8);
    drop(c2);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    check("member gone", c.get_consumer_group(&gg()).await.unwrap().members_count == 1);
    check(
        "leave",
        c.leave_consumer_group(&LeaveConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await
        .is_ok(),
    );
    check(
        "delete group",
        c.delete_consumer_group(&DeleteConsumerGroup {
            stream_id: id(61),
            topic_id: id(2),
            consumer_group_id: 7,
        })
        .await
        .is_ok(),
    );
    use iggy::partitions::{create_partitions::*, delete_partitions::*};
    check(
        "create partitions",
        c.create_partitions(&CreatePartitions { stream_id: id(61), topic_id: id(2), partitions_count: 2 })
            .await
            .is_ok(),
    );
    check(
        "five",
        c.get_topic(&GetTopic { stream_id: id(61), topic_id: id(2) }).await.unwrap().partitions_count == 5,
    );
    check(
        "delete partitions",
        c.delete_partitions(&DeletePartitions { stream_id: id(61), topic_id: id(2), partitions_count: 3 })
            .await
            .is_ok(),
    );
    check(
        "two",
        c.get_topic(&GetTopic { stream_id: id(61), topic_id: id(2) }).await.unwrap().partitions_count == 2,
    );
    let st = c.get_stats(&Default::default()).await.unwrap();
    check("stats", st.streams_count >= 1 && st.topics_count >= 2 && st.messages_count >= 7);
    check("delete topic", c.delete_topic(&DeleteTopic { stream_id: id(61), topic_id: id(2) }).await.is_ok());
    check("delete stream", c.delete_stream(&DeleteStream { stream_id: id(61) }).await.is_ok());
    let mut m = SendMessages {
        stream_id: named("shared"),
        topic_id: named("all"),
        partitioning: Partitioning::partition_id(1),
        messages: vec![Message::new(None, "from rust 0.0.60".into(), None)],
    };
    check("share", c.send_messages(&mut m).await.is_ok());
    println!("{} ok, {} bad", GOOD.load(Ordering::Relaxed), BAD.load(Ordering::Relaxed));
}

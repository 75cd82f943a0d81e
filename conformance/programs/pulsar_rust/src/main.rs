// What the crate `pulsar` does, step by step; a line each. Arguments: HOST:PORT of Pulsar's listener.
// It has no table view, no chunks, no key-based batches and no retry topics.
use futures::TryStreamExt;
use pulsar::compression::{Compression, CompressionLz4, CompressionSnappy, CompressionZlib, CompressionZstd};
use pulsar::consumer::{data::DeadLetterPolicy, InitialPosition};
use pulsar::message::proto::{schema, Schema};
use pulsar::producer::Message;
use pulsar::{Consumer, ConsumerOptions, Producer, ProducerOptions, Pulsar, SubType, TokioExecutor};
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::time::{Duration, Instant};

type Client = Pulsar<TokioExecutor>;
type Taken = Consumer<Vec<u8>, TokioExecutor>;
type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const WAIT: Duration = Duration::from_secs(30);
const BASE: &str = "persistent://public/default/";

fn check(holds: bool, what: impl Into<String>) -> Done {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

async fn step(name: &str, work: impl Future<Output = Done>) -> bool {
    let begun = Instant::now();
    match tokio::time::timeout(Duration::from_secs(90), work).await {
        Ok(Ok(())) => println!("ok {name} {} ms", begun.elapsed().as_millis()),
        Ok(Err(error)) => { println!("FAILED {name}: {error}"); return false; }
        Err(_) => { println!("FAILED {name}: no end within 90 s"); return false; }
    }
    true
}

async fn producer(client: &Client, topic: &str, options: ProducerOptions) -> Result<Producer<TokioExecutor>, pulsar::Error> {
    client.producer().with_topic(topic).with_options(options).build().await
}

async fn consumer(client: &Client, topic: &str, kind: SubType) -> Result<Taken, pulsar::Error> {
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    client.consumer().with_topic(topic).with_subscription("s").with_subscription_type(kind).with_options(options).build().await
}

async fn next(consumer: &mut Taken) -> Result<pulsar::consumer::Message<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
    match tokio::time::timeout(WAIT, consumer.try_next()).await {
        Ok(found) => found?.ok_or_else(|| "the consumer ended".into()),
        Err(_) => Err("no message within 30 s".into()),
    }
}

async fn more(consumer: &mut Taken) -> Option<pulsar::consumer::Message<Vec<u8>>> {
    tokio::time::timeout(Duration::from_millis(100), consumer.try_next()).await.ok()?.ok()?
}

async fn send(producer: &mut Producer<TokioExecutor>, message: Message) -> Done {
    producer.send_non_blocking(message).await?.await?;
    Ok(())
}

fn message(value: &str) -> Message {
    Message { payload: value.as_bytes().to_vec(), ..Default::default() }
}

async fn exclusive(client: &Client) -> Done {
    let topic = format!("{BASE}rust-e");
    let mut c = consumer(client, &topic, SubType::Exclusive).await?;
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    for i in 0..100 { send(&mut p, message(&format!("m{i}"))).await?; }
    for i in 0..100 {
        let m = next(&mut c).await?;
        check(m.payload.data == format!("m{i}").into_bytes(), format!("order at {i}"))?;
        c.ack(&m).await?;
    }
    // The client asks again for as long as it is told ConsumerBusy.
    let second = tokio::time::timeout(Duration::from_secs(1), consumer(client, &topic, SubType::Exclusive)).await;
    check(!matches!(second, Ok(Ok(_))), "a second exclusive consumer")?;
    c.close().await?;
    Ok(p.close().await?)
}

async fn shared_out(client: &Client, kind: SubType, name: &str) -> Done {
    let topic = format!("{BASE}rust-{name}");
    let mut cs = vec![consumer(client, &topic, kind).await?, consumer(client, &topic, kind).await?];
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    for i in 0..200 {
        let keyed = Message { partition_key: Some(format!("k{}", i % 8)), ..message(&i.to_string()) };
        send(&mut p, keyed).await?;
    }
    let (mut seen, mut owners, until) = (BTreeSet::new(), HashMap::<String, BTreeSet<usize>>::new(), Instant::now() + WAIT);
    while seen.len() < 200 && Instant::now() < until {
        for (number, c) in cs.iter_mut().enumerate() {
            while let Some(m) = more(c).await {
                check(seen.insert(m.payload.data.clone()), "twice")?;
                owners.entry(m.key().unwrap_or_default()).or_default().insert(number);
                c.ack(&m).await?;
            }
        }
    }
    check(seen.len() == 200, format!("only {}", seen.len()))?;
    check(kind != SubType::KeyShared || owners.values().all(|at| at.len() == 1), "a key at two")?;
    for mut c in cs { c.close().await?; }
    Ok(p.close().await?)
}

async fn batches(client: &Client) -> Done {
    let kinds = [Compression::None, Compression::Lz4(CompressionLz4::default()), Compression::Zlib(CompressionZlib::default()),
        Compression::Zstd(CompressionZstd::default()), Compression::Snappy(CompressionSnappy::default())];
    for (number, compression) in kinds.into_iter().enumerate() {
        let topic = format!("{BASE}rust-b{number}");
        let mut c = consumer(client, &topic, SubType::Shared).await?;
        let options = ProducerOptions { batch_size: Some(10), compression: Some(compression), ..Default::default() };
        let mut p = producer(client, &topic, options).await?;
        let sent = p.send_all((0..30).map(|i| message(&format!("{i}"))).collect::<Vec<_>>()).await?;
        for receipt in sent { receipt.await?; }
        for i in 0..30 {
            let m = next(&mut c).await?;
            check(m.payload.data == i.to_string().into_bytes(), format!("codec {number}, order at {i}"))?;
            c.ack(&m).await?;
        }
        c.close().await?;
        p.close().await?;
    }
    Ok(())
}

async fn delayed(client: &Client) -> Done {
    let topic = format!("{BASE}rust-d");
    let mut c = consumer(client, &topic, SubType::Shared).await?;
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    let begun = Instant::now();
    p.create_message().with_content("later").delay(Duration::from_secs(1))?.send_non_blocking().await?.await?;
    next(&mut c).await?;
    check(begun.elapsed() >= Duration::from_millis(980), "too early")?;
    c.close().await?;
    Ok(p.close().await?)
}

async fn dead_letter(client: &Client) -> Done {
    let (topic, dead) = (format!("{BASE}rust-r"), format!("{BASE}rust-r-dead"));
    let mut d = consumer(client, &dead, SubType::Shared).await?;
    let policy = DeadLetterPolicy { max_redeliver_count: 2, dead_letter_topic: dead };
    let mut c: Taken = client.consumer().with_topic(&topic).with_subscription("s").with_subscription_type(SubType::Shared)
        .with_dead_letter_policy(policy).build().await?;
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    send(&mut p, message("x")).await?;
    for _ in 0..2 {
        let m = next(&mut c).await?;
        c.nack(&m).await?;
    }
    let until = Instant::now() + WAIT;  // The client moves it when it comes once more.
    let moved = loop {
        if let Some(m) = more(&mut c).await { c.nack(&m).await?; }
        if let Some(m) = more(&mut d).await { break m; }
        check(Instant::now() < until, "not on the dead letter topic")?;
    };
    check(moved.payload.data == b"x", "another message")?;
    c.close().await?;
    d.close().await?;
    Ok(p.close().await?)
}

async fn schemas(client: &Client) -> Done {
    let topic = format!("{BASE}rust-j");
    let text = br#"{"type":"record","name":"Item","fields":[{"name":"count","type":"int"}]}"#;
    let json = Schema { r#type: schema::Type::Json as i32, schema_data: text.to_vec(), name: "Item".into(), ..Default::default() };
    let options = ProducerOptions { schema: Some(json), ..Default::default() };
    let mut p = producer(client, &topic, options).await?;
    send(&mut p, message(r#"{"count":3}"#)).await?;
    let string = Schema { r#type: schema::Type::String as i32, ..Default::default() };
    let other = ProducerOptions { schema: Some(string), ..Default::default() };
    check(producer(client, &topic, other).await.is_err(), "another type is taken")?;
    let mut c = consumer(client, &topic, SubType::Exclusive).await?;
    let m = next(&mut c).await?;
    let version = m.metadata().schema_version.clone();
    let found = c.get_schema(&topic, version).await?;
    check(found.is_some(), "no schema")?;
    c.close().await?;
    Ok(p.close().await?)
}

async fn reader(client: &Client) -> Done {
    let topic = format!("{BASE}rust-t");
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    for i in 0..5 { send(&mut p, message(&i.to_string())).await?; }
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    let mut r: pulsar::reader::Reader<Vec<u8>, TokioExecutor> =
        client.reader().with_topic(&topic).with_consumer_name("r").with_options(options).into_reader().await?;
    for i in 0..5 {
        let m = tokio::time::timeout(WAIT, r.try_next()).await??.ok_or("the reader ended")?;
        check(m.payload.data == i.to_string().into_bytes(), format!("order at {i}"))?;
    }
    let last = r.get_last_message_id().await?;
    check(last.entry_id == 4, format!("last id {}", last.entry_id))?;
    Ok(p.close().await?)
}

async fn seek(client: &Client) -> Done {
    let topic = format!("{BASE}rust-s");
    let mut p = producer(client, &topic, ProducerOptions::default()).await?;
    for i in 0..5 { send(&mut p, message(&i.to_string())).await?; }
    let mut c = consumer(client, &topic, SubType::Shared).await?;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let m = next(&mut c).await?;
        ids.push(m.message_id().clone());
        c.ack(&m).await?;
    }
    c.seek(None, Some(ids[2].clone()), None, client.clone()).await?;
    let mut again = BTreeSet::new();
    let until = Instant::now() + WAIT;
    while again.len() < 3 && Instant::now() < until {
        if let Some(m) = more(&mut c).await { again.insert(m.payload.data.clone()); c.ack(&m).await?; }
    }
    check(again == BTreeSet::from([b"2".to_vec(), b"3".to_vec(), b"4".to_vec()]), format!("{again:?}"))?;
    check(!c.get_stats().await?.is_empty(), "no statistics")?;
    // The seek replaced the consumer. The client may have connected the old one again before it let go of
    // it, and the last consumer alone may unsubscribe.
    while let Err(error) = c.unsubscribe().await {
        if Instant::now() >= until { return Err(error.into()); }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(p.close().await?)
}

async fn pattern(client: &Client) -> Done {
    let mut p = producer(client, &format!("{BASE}rust-pat-1"), ProducerOptions::default()).await?;
    send(&mut p, message("1")).await?;
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    let mut c: Taken = client.consumer().with_topic_regex("persistent://public/default/rust-pat-.*".parse()?)
        .with_lookup_namespace("public/default").with_topic_refresh(Duration::from_millis(500)).with_subscription("s")
        .with_subscription_type(SubType::Shared).with_options(options).build().await?;
    let m = next(&mut c).await?;
    c.ack(&m).await?;
    let mut q = producer(client, &format!("{BASE}rust-pat-2"), ProducerOptions::default()).await?;
    send(&mut q, message("2")).await?;
    check(next(&mut c).await?.payload.data == b"2", "not of the new topic")?;
    p.close().await?;
    q.close().await?;
    Ok(c.close().await?)
}

async fn live(client: &Client) -> Done {
    let topic = "non-persistent://public/default/rust-live";
    let mut c = consumer(client, topic, SubType::Shared).await?;
    let mut p = producer(client, topic, ProducerOptions::default()).await?;
    for _ in 0..100 {
        send(&mut p, message("x")).await?;
        if more(&mut c).await.is_some() {
            c.close().await?;
            return Ok(p.close().await?);
        }
    }
    check(false, "nothing came")
}

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).expect("HOST:PORT");
    let client: Client = Pulsar::builder(format!("pulsar://{address}"), TokioExecutor).build().await.expect("a connection");
    let client = &client;
    let mut all = step("exclusive", exclusive(client)).await;
    all &= step("Failover", shared_out(client, SubType::Failover, "failover")).await;
    all &= step("Shared", shared_out(client, SubType::Shared, "shared")).await;
    all &= step("Key_Shared", shared_out(client, SubType::KeyShared, "key-shared")).await;
    all &= step("batches, every compression", batches(client)).await;
    all &= step("delayed", delayed(client)).await;
    all &= step("dead letter", dead_letter(client)).await;
    all &= step("json schema", schemas(client)).await;
    all &= step("reader", reader(client)).await;
    all &= step("seek, statistics, unsubscribe", seek(client)).await;
    all &= step("pattern, a new topic", pattern(client)).await;
    all &= step("non-persistent", live(client)).await;
    std::process::exit(i32::from(!all));
}

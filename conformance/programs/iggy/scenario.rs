// What every client of the crate from 0.5 on offers, and what it must see. Included by the programs
// of each version, which bring what differs: `client`, `create_stream`, `create_topic`,
// `create_group`, `message`, `polled`, `purge`, `extras`, `offset_of`, `text_of`, NAME and FIRST, the number of the first partition.
//
// `PROGRAM work|read HOST:PORT`: `work` writes a line for each thing that is not as it must be and a
// count at the end, `read` the text of every message in shared/all.

use std::sync::atomic::{AtomicU32, Ordering};

static GOOD: AtomicU32 = AtomicU32::new(0);
static BAD: AtomicU32 = AtomicU32::new(0);

fn check(name: &str, good: bool) {
    (if good { &GOOD } else { &BAD }).fetch_add(1, Ordering::Relaxed);
    if !good {
        println!("BAD {name}");
    }
}

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

async fn texts(
    c: &IggyClient,
    stream: &str,
    topic: &str,
    partition: Option<u32>,
    consumer: &Consumer,
    strategy: PollingStrategy,
    count: u32,
    commit: bool,
) -> Vec<(u64, String)> {
    match polled(c, &named(stream), &named(topic), partition, consumer, &strategy, count, commit).await {
        Ok(found) => found.iter().map(|m| (offset_of(m), text_of(m))).collect(),
        Err(error) => {
            println!("poll: {error}");
            vec![]
        }
    }
}

fn numbered(range: std::ops::Range<u64>) -> Vec<(u64, String)> {
    range.map(|at| (at, format!("m{at}"))).collect()
}

async fn send(c: &IggyClient, stream: &str, topic: &str, to: Partitioning, texts: &[String]) -> bool {
    let mut messages: Vec<_> = texts.iter().map(|text| message(text)).collect();
    c.send_messages(&named(stream), &named(topic), &to, &mut messages).await.is_ok()
}

async fn work(address: &str) {
    let c = client(address).await;
    let (stream, topic) = (named(NAME), named("tp"));
    check("ping", c.ping().await.is_ok());
    check("no stream", matches!(c.get_stream(&stream).await, Ok(None)));
    check("create stream", create_stream(&c, NAME).await);
    check("stream taken", !create_stream(&c, NAME).await);
    check("streams", c.get_streams().await.unwrap().iter().any(|one| one.name == NAME));
    check("create topic", create_topic(&c, NAME, "tp", 3).await);
    check("no topic", matches!(c.get_topic(&stream, &named("no")).await, Ok(None)));
    let found = c.get_topic(&stream, &topic).await.unwrap().unwrap();
    check("topic", found.partitions_count == 3 && found.partitions.len() == 3);
    check("first partition", found.partitions.iter().map(|one| one.id).min() == Some(FIRST));
    check("topics", c.get_topics(&stream).await.unwrap().len() == 1);

    let all: Vec<String> = (0..5).map(|at| format!("m{at}")).collect();
    check("send", send(&c, NAME, "tp", Partitioning::partition_id(FIRST), &all).await);
    let one = Consumer::new(Identifier::numeric(11).unwrap());
    let at = Some(FIRST);
    let poll = |strategy, count, commit| texts(&c, NAME, "tp", at, &one, strategy, count, commit);
    check("offset", poll(PollingStrategy::offset(3), 2, false).await == numbered(3..5));
    check("first", poll(PollingStrategy::first(), 2, false).await == numbered(0..2));
    check("last", poll(PollingStrategy::last(), 2, false).await == numbered(3..5));
    let long_ago = PollingStrategy::timestamp(1.into());
    check("timestamp", poll(long_ago, 2, false).await == numbered(0..2));
    check("next", poll(PollingStrategy::next(), 3, true).await == numbered(0..3));
    check("next rest", poll(PollingStrategy::next(), 3, true).await == numbered(3..5));
    check("next end", poll(PollingStrategy::next(), 3, true).await.is_empty());
    let stored = c.get_consumer_offset(&one, &stream, &topic, at).await.unwrap().unwrap();
    check("stored", stored.stored_offset == 4 && stored.current_offset == 4);
    check("store", c.store_consumer_offset(&one, &stream, &topic, at, 1).await.is_ok());
    check("after store", poll(PollingStrategy::next(), 1, false).await == numbered(2..3));
    check("beyond", c.store_consumer_offset(&one, &stream, &topic, at, 99).await.is_err());
    check("forget", c.delete_consumer_offset(&one, &stream, &topic, at).await.is_ok());
    check(
        "forgotten",
        matches!(c.get_consumer_offset(&one, &stream, &topic, at).await, Ok(None)),
    );
    let key = Partitioning::messages_key_str("key-1").unwrap();
    check("send by key", send(&c, NAME, "tp", key, &["k".into()]).await);
    check("send in turn", send(&c, NAME, "tp", Partitioning::balanced(), &["t".into()]).await);
    let found = c.get_topic(&stream, &topic).await.unwrap().unwrap();
    check("counted", found.messages_count == 7);

    groups(&c, address).await;
    check("grow", c.create_partitions(&stream, &topic, 2).await.is_ok());
    let found = c.get_topic(&stream, &topic).await.unwrap().unwrap();
    check("grown", found.partitions_count == 5);
    check("shrink", c.delete_partitions(&stream, &topic, 2).await.is_ok());
    check("purge", purge(&c, &stream, &topic).await);
    extras(&c).await;
    let stats = c.get_stats().await.unwrap();
    check("stats", stats.streams_count >= 2 && stats.topics_count >= 2);
    check("clients", c.get_clients().await.unwrap().len() >= 1);
    check("metadata again", c.get_me().await.is_ok());
    check("disconnect", c.disconnect().await.is_ok());
    check("connect", c.connect().await.is_ok());
    check("login", c.login_user("iggy", "iggy").await.is_ok());
    check("delete topic", c.delete_topic(&stream, &topic).await.is_ok());
    check("delete stream", c.delete_stream(&stream).await.is_ok());
    let line = vec![format!("from {NAME}")];
    check("share", send(&c, "shared", "all", Partitioning::partition_id(FIRST), &line).await);
    check("logout", c.logout_user().await.is_ok());
    println!("{} ok, {} bad", GOOD.load(Ordering::Relaxed), BAD.load(Ordering::Relaxed));
}

async fn groups(c: &IggyClient, address: &str) {
    let (stream, topic, group) = (named(NAME), named("tp"), named("grp"));
    let second = client(address).await;
    check("no group", matches!(c.get_consumer_group(&stream, &topic, &group).await, Ok(None)));
    check("create group", create_group(c, NAME, "tp", "grp").await);
    check("groups", c.get_consumer_groups(&stream, &topic).await.unwrap().len() == 1);
    for one in [c, &second] {
        check("join", one.join_consumer_group(&stream, &topic, &group).await.is_ok());
    }
    let found = c.get_consumer_group(&stream, &topic, &group).await.unwrap().unwrap();
    let dealt: usize = found.members.iter().map(|one| one.partitions.len()).sum();
    check("two members", found.members_count == 2 && dealt == 3);
    let member = Consumer::group(group.clone());
    let mut read = vec![];
    for _ in 0..6 {
        for one in [c, &second] {
            read.extend(texts(one, NAME, "tp", None, &member, PollingStrategy::next(), 9, true).await);
        }
    }
    let mut read: Vec<String> = read.into_iter().map(|(_, text)| text).collect();
    read.sort();
    check("each message once", read == ["k", "m0", "m1", "m2", "m3", "m4", "t"]);
    check("leave", second.leave_consumer_group(&stream, &topic, &group).await.is_ok());
    let found = c.get_consumer_group(&stream, &topic, &group).await.unwrap().unwrap();
    check("one member", found.members_count == 1);
    check("leave too", c.leave_consumer_group(&stream, &topic, &group).await.is_ok());
    check("delete group", c.delete_consumer_group(&stream, &topic, &group).await.is_ok());
}

async fn read(address: &str) {
    let c = client(address).await;
    let reader = Consumer::new(Identifier::named("reader").unwrap());
    let first = PollingStrategy::first();
    for (_, text) in texts(&c, "shared", "all", Some(FIRST), &reader, first, 1000, false).await {
        println!("{text}");
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[1] == "work" {
        work(&arguments[2]).await;
    } else {
        read(&arguments[2]).await;
    }
}

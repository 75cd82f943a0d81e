// The crate 0.11.1-edge.9, a development build of 0.12 (dialect W).
use iggy::prelude::*;
use std::str::FromStr;

const NAME: &str = "rust 0.11.1-edge.9";
const FIRST: u32 = 0;

async fn client(address: &str) -> IggyClient {
    let c = IggyClient::builder().with_tcp().with_server_address(address.to_string()).build().unwrap();
    c.connect().await.unwrap();
    c.login_user("iggy", "iggy").await.unwrap();
    c
}

async fn create_stream(c: &IggyClient, name: &str) -> bool {
    matches!(c.create_stream(name, &StreamCreateOptions::default()).await, Ok(made) if made.name == name)
}

async fn create_topic(c: &IggyClient, stream: &str, topic: &str, partitions: u32) -> bool {
    let options = TopicCreateOptions { partitions_count: Some(partitions), ..Default::default() };
    c.create_topic(&named(stream), topic, &options).await.is_ok()
}

async fn create_group(c: &IggyClient, stream: &str, topic: &str, group: &str) -> bool {
    c.create_consumer_group(&named(stream), &named(topic), group).await.is_ok()
}

fn message(text: &str) -> IggyMessage {
    IggyMessage::from_str(text).unwrap()
}

fn offset_of(message: &IggyMessage) -> u64 {
    message.header.offset
}

fn text_of(message: &IggyMessage) -> String {
    String::from_utf8_lossy(&message.payload).to_string()
}

/// A group's poll names a partition: without one, all partitions of the member are polled.
#[allow(clippy::too_many_arguments)]
async fn polled(
    c: &IggyClient,
    stream: &Identifier,
    topic: &Identifier,
    partition: Option<u32>,
    consumer: &Consumer,
    strategy: &PollingStrategy,
    count: u32,
    commit: bool,
) -> Result<Vec<IggyMessage>, IggyError> {
    let partitions = match partition {
        Some(partition) => vec![partition],
        None => match c.sync_consumer_group(stream, topic, &consumer.id).await? {
            Some(assigned) => assigned.partitions,
            None => vec![],
        },
    };
    let commit = if commit { CommitPolicy::OnRead } else { CommitPolicy::Manual };
    let mut messages = vec![];
    for partition in partitions {
        let options = PollOptions { count, commit, ..Default::default() };
        let found = c.poll_messages(stream, topic, partition, consumer, strategy, options).await?;
        messages.extend(found.messages);
    }
    Ok(messages)
}

/// Purges are gone since protocol 0.12.
async fn purge(_: &IggyClient, _: &Identifier, _: &Identifier) -> bool {
    true
}

/// Offers of protocol 0.12: idempotent producers, options, updates.
async fn extras(c: &IggyClient) {
    let (stream, topic) = (named(NAME), named("idempotent"));
    check("idempotent topic", create_topic(c, NAME, "idempotent", 2).await);
    let producer = c.producer(NAME, "idempotent").unwrap().idempotent().build();
    check("producer", producer.init().await.is_ok());
    for at in 0..5 {
        let sent = producer.send_with_partitioning(
            vec![message(&format!("i{at}"))],
            Some(std::sync::Arc::new(Partitioning::partition_id(0))),
        );
        check("idempotent send", sent.await.is_ok());
    }
    let one = Consumer::new(Identifier::numeric(12).unwrap());
    let first = PollingStrategy::first();
    let read = polled(c, &stream, &topic, Some(0), &one, &first, 9, false).await.unwrap();
    check("idempotent messages", read.iter().map(text_of).eq((0..5).map(|at| format!("i{at}"))));
    let options = TopicUpdateOptions { name: Some("renamed".to_string()), ..Default::default() };
    check("update", c.update_topic(&stream, &topic, &options).await.is_ok());
    check("options", c.describe_options(OptionsScope::Topic).await.is_ok_and(|all| !all.is_empty()));
    let partitions = c.get_topic(&stream, &named("renamed")).await.unwrap().unwrap().partitions_count;
    check("renamed", partitions == 2);
    check("delete", c.delete_topic(&stream, &named("renamed")).await.is_ok());
}

include!("../../scenario.rs");

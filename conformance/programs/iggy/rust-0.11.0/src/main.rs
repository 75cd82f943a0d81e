// The crate 0.11 (dialect V).
use iggy::prelude::*;
use std::str::FromStr;

const NAME: &str = "rust 0.11.0";
const FIRST: u32 = 0;

async fn client(address: &str) -> IggyClient {
    let c = IggyClient::builder().with_tcp().with_server_address(address.to_string()).build().unwrap();
    c.connect().await.unwrap();
    c.login_user("iggy", "iggy").await.unwrap();
    c
}

async fn create_stream(c: &IggyClient, name: &str) -> bool {
    matches!(c.create_stream(name).await, Ok(made) if made.name == name)
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
    let found = c.poll_messages(stream, topic, partition, consumer, strategy, count, commit).await?;
    Ok(found.messages)
}

async fn purge(c: &IggyClient, stream: &Identifier, topic: &Identifier) -> bool {
    c.purge_topic(stream, topic).await.is_ok()
}

async fn extras(_: &IggyClient) {}

include!("../../scenario.rs");

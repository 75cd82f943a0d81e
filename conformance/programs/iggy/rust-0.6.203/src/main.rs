// The crate 0.6 (dialect D2).
use iggy::client::*;
use iggy::clients::client::IggyClient;
use iggy::compression::compression_algorithm::CompressionAlgorithm;
use iggy::consumer::Consumer;
use iggy::error::IggyError;
use iggy::identifier::Identifier;
use iggy::messages::poll_messages::PollingStrategy;
use iggy::messages::send_messages::{Message, Partitioning};
use iggy::models::messages::PolledMessage;
use iggy::utils::expiry::IggyExpiry;
use iggy::utils::topic_size::MaxTopicSize;

const NAME: &str = "rust 0.6.203";
const FIRST: u32 = 1;

async fn client(address: &str) -> IggyClient {
    let c = IggyClient::builder().with_tcp().with_server_address(address.to_string()).build().unwrap();
    c.connect().await.unwrap();
    c.login_user("iggy", "iggy").await.unwrap();
    c
}

async fn create_stream(c: &IggyClient, name: &str) -> bool {
    matches!(c.create_stream(name, None).await, Ok(made) if made.name == name)
}

async fn create_topic(c: &IggyClient, stream: &str, topic: &str, partitions: u32) -> bool {
    let (none, never) = (CompressionAlgorithm::None, IggyExpiry::NeverExpire);
    let size = MaxTopicSize::Unlimited;
    c.create_topic(&named(stream), topic, partitions, none, None, None, never, size).await.is_ok()
}

async fn create_group(c: &IggyClient, stream: &str, topic: &str, group: &str) -> bool {
    c.create_consumer_group(&named(stream), &named(topic), group, None).await.is_ok()
}

fn message(text: &str) -> Message {
    Message::new(None, text.to_string().into(), None)
}

fn offset_of(message: &PolledMessage) -> u64 {
    message.offset
}

fn text_of(message: &PolledMessage) -> String {
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
) -> Result<Vec<PolledMessage>, IggyError> {
    let found = c.poll_messages(stream, topic, partition, consumer, strategy, count, commit).await?;
    Ok(found.messages)
}

async fn purge(c: &IggyClient, stream: &Identifier, topic: &Identifier) -> bool {
    c.purge_topic(stream, topic).await.is_ok()
}

async fn extras(_: &IggyClient) {}

include!("../../scenario.rs");

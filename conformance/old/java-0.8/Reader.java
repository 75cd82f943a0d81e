import java.util.Collections;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.javaapi.consumer.ConsumerConnector;

/** The high-level consumer of Kafka 0.8: `Reader ZOOKEEPER TOPIC GROUP COUNT`. */
public class Reader {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("zookeeper.connection.timeout.ms", "30000");
        settings.put("group.id", args[2]);
        settings.put("auto.commit.enable", "false");
        settings.put("auto.offset.reset", "smallest");
        ConsumerConnector connector =
            Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        ConsumerIterator<byte[], byte[]> messages =
            connector.createMessageStreams(Collections.singletonMap(args[1], 1))
                .get(args[1]).get(0).iterator();
        for (int left = Integer.parseInt(args[3]); left > 0; left--) {
            System.out.println(new String(messages.next().message()));
        }
        connector.commitOffsets();
        connector.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}

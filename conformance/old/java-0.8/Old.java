// What a user of Kafka 0.8.2's own clients wrote: the Java producer, the SimpleConsumer, commits of version 1.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

public class Old {
    static final short COMMIT_VERSION = 1;

    public static void main(String[] args) throws Exception {
        String topic = args[2];
        if (args[0].equals("produce")) {
            produce(args[1], topic, args[3]);
            return;
        }
        int colon = args[1].lastIndexOf(':');
        String host = args[1].substring(0, colon);
        int port = Integer.parseInt(args[1].substring(colon + 1));
        var consumer = new SimpleConsumer(host, port, 30000, 1 << 20, "old");
        switch (args[0]) {
            case "read" -> read(consumer, topic, Integer.parseInt(args[3]));
            case "commit" -> commit(consumer, topic, args[3], Long.parseLong(args[4]));
            case "committed" -> committed(consumer, topic, args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
        consumer.close();
    }

    static void produce(String address, String topic, String codec) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("compression.type", codec);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        var producer = new KafkaProducer<byte[], byte[]>(settings);
        String[][] records = {{"k0", "v0"}, {null, "v1"}, {"k2", "v2"}, {"k5", "x".repeat(5000)}};
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String[] one : records) {
            byte[] key = one[0] == null ? null : one[0].getBytes();
            sent.add(producer.send(new ProducerRecord<>(topic, 0, key, one[1].getBytes())));
        }
        for (var one : sent) {
            one.get();
        }
        producer.close();
        System.out.println("{\"done\": true}");
    }

    static void read(SimpleConsumer consumer, String topic, int count) {
        long next = 0;
        for (int taken = 0; taken < count; ) {
            var request = new FetchRequestBuilder().clientId("old").addFetch(topic, 0, next, 1 << 20).maxWait(500).minBytes(1);
            for (MessageAndOffset one : consumer.fetch(request.build()).messageSet(topic, 0)) {
                if (one.offset() < next || taken == count) {
                    continue;
                }
                String key = text(one.message().key());
                System.out.println("{\"offset\": " + one.offset() + ", \"key\": " + key + ", \"value\": " + text(one.message().payload()) + "}");
                next = one.nextOffset();
                taken++;
            }
        }
    }

    static void commit(SimpleConsumer consumer, String topic, String group, long offset) {
        var wanted = Map.of(new TopicAndPartition(topic, 0), new OffsetAndMetadata(offset, "", -1));
        var answer = consumer.commitOffsets(new OffsetCommitRequest(group, wanted, 1, "old", COMMIT_VERSION));
        if (answer.hasError()) {
            throw new IllegalStateException("Error: " + answer.errors());
        }
        System.out.println("{\"done\": true}");
    }

    static void committed(SimpleConsumer consumer, String topic, String group) {
        var place = new TopicAndPartition(topic, 0);
        var answer = consumer.fetchOffsets(new OffsetFetchRequest(group, List.of(place), COMMIT_VERSION, 1, "old"));
        System.out.println("{\"offset\": " + answer.offsets().get(place).offset() + "}");
    }

    static String text(ByteBuffer data) {
        if (data == null) {
            return "null";
        }
        byte[] copy = new byte[data.remaining()];
        data.get(copy);
        return '"' + Base64.getEncoder().encodeToString(copy) + '"';
    }
}

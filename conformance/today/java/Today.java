// What a user of Kafka's own Java client writes, with its default settings; see ../README.md.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

public class Today {
    static volatile boolean isEnding;

    public static void main(String[] args) throws Exception {
        Properties common = new Properties();
        common.put("bootstrap.servers", args[1]);
        switch (args[0]) {
            case "produce" -> produce(common, args[2], args[3]);
            case "read" -> read(common, args[2], Integer.parseInt(args[3]));
            case "member" -> member(common, args[2], args[3], false);
            case "modern" -> member(common, args[2], args[3], true);
            case "share" -> Class.forName("Share").getMethod("main", String[].class).invoke(null, (Object) args);
            case "admin" -> admin(common, args[2]);
            case "transact" -> transact(common, args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void produce(Properties common, String topic, String codec) throws Exception {
        common.put("compression.type", codec);
        common.put("linger.ms", "5");
        serializers(common);
        List<Header> headers = List.of(
            new RecordHeader("a", bytes("1")), new RecordHeader("a", bytes("2")), new RecordHeader("b", bytes("")));
        try (var producer = new KafkaProducer<byte[], byte[]>(common)) {
            var sent = List.of(
                producer.send(new ProducerRecord<>(topic, 0, bytes("k0"), bytes("v0"))),
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("v1"))),
                producer.send(new ProducerRecord<>(topic, 0, bytes("k2"), null)),
                producer.send(new ProducerRecord<>(topic, 0, bytes(""), bytes(""))),
                producer.send(new ProducerRecord<>(topic, 0, bytes("k4"), bytes("v4"), headers)),
                producer.send(new ProducerRecord<>(topic, 0, bytes("k5"), bytes("x".repeat(5000)))));
            for (var one : sent) {
                one.get();
            }
        }
        say("{\"done\": true}");
    }

    static void read(Properties common, String topic, int count) {
        deserializers(common);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(common)) {
            var partition = List.of(new TopicPartition(topic, 0));
            consumer.assign(partition);
            consumer.seekToBeginning(partition);
            for (int taken = 0; taken < count; ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    say(text(record));
                    taken++;
                }
            }
        }
    }

    static void member(Properties common, String topic, String group, boolean isModern) {
        deserializers(common);
        common.put("group.id", group);
        if (isModern) {
            common.put("group.protocol", "consumer");
        } else {
            common.put("session.timeout.ms", "6000");
            common.put("heartbeat.interval.ms", "1000");
        }
        common.put("auto.offset.reset", "earliest");
        common.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<byte[], byte[]>(common);
        var main = Thread.currentThread();
        // A termination lets the member finish its commit and leave the group; a kill does not.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isEnding = true;
            try {
                main.join(20_000);
            } catch (InterruptedException error) {
                main.interrupt();
            }
        }));
        follow(consumer, topic);
        consumer.close();
    }

    static void follow(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        Set<Integer> mine = new TreeSet<>();
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> gone) {
                gone.forEach(one -> mine.remove(one.partition()));
                say("{\"assigned\": " + mine + "}");
            }

            public void onPartitionsAssigned(Collection<TopicPartition> more) {
                more.forEach(one -> mine.add(one.partition()));
                say("{\"assigned\": " + mine + "}");
            }
        });
        while (!isEnding) {
            var found = consumer.poll(Duration.ofMillis(200));
            for (var record : found) {
                say(text(record));
            }
            if (!found.isEmpty()) {
                try {
                    consumer.commitSync();
                    say("{\"committed\": true}");
                } catch (CommitFailedException | RebalanceInProgressException error) {
                    say("{\"committed\": false}"); // Another member gets the records again.
                }
            }
        }
    }

    static void transact(Properties common, String topic) throws Exception {
        common.put("transactional.id", "t");
        serializers(common);
        try (var producer = new KafkaProducer<byte[], byte[]>(common)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, bytes("v"))).get();
            producer.commitTransaction();
        }
    }

    static void admin(Properties common, String topic) throws Exception {
        try (var admin = Admin.create(common)) {
            var made = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "100000"));
            admin.createTopics(List.of(made)).all().get();
            check(admin.listTopics().names().get().contains(topic), "listed");
            check(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 2, "two");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            check(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 3, "three");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            check(setting(admin, resource).equals("100000"), "set");
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "200000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            check(setting(admin, resource).equals("200000"), "changed");
            var partition = new TopicPartition(topic, 0);
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(0))).all().get();
            admin.listConsumerGroups().all().get();
            check(!admin.describeCluster().nodes().get().isEmpty(), "nodes");
            admin.deleteTopics(List.of(topic)).all().get();
            check(!admin.listTopics().names().get().contains(topic), "deleted");
        }
        say("{\"done\": true}");
    }

    static String setting(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    static void serializers(Properties common) {
        common.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        common.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    }

    static void deserializers(Properties common) {
        common.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        common.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    }

    static String text(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header one : record.headers()) {
            headers.add("[\"" + one.key() + "\", " + base64(one.value()) + "]");
        }
        return "{\"partition\": " + record.partition() + ", \"offset\": " + record.offset() + ", \"key\": "
            + base64(record.key()) + ", \"value\": " + base64(record.value()) + ", \"headers\": " + headers + "}";
    }

    static String base64(byte[] data) {
        return data == null ? "null" : '"' + Base64.getEncoder().encodeToString(data) + '"';
    }

    static byte[] bytes(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}

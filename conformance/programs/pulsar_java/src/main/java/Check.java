import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.common.policies.data.*;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** What Java's client and admin client do, step by step; a line each. */
public class Check {
    static final List<SubscriptionType> SHARING =
        List.of(SubscriptionType.Failover, SubscriptionType.Shared, SubscriptionType.Key_Shared);
    static int failed = 0;
    interface Step {
        void run() throws Exception;
    }
    static void step(String name, Step step) {
        long begun = System.nanoTime();
        try {
            step.run();
            System.out.println("ok " + name + " " + (System.nanoTime() - begun) / 1000000 + " ms");
        }
        catch (Throwable error) {
            failed++;
            System.out.println("FAILED " + name + ": " + error);
        }
    }
    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }
    public static void main(String[] args) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl("pulsar://" + args[0]).build();
        PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(args[1]).build();
        String ns = "public/default", base = "persistent://" + ns + "/";
        step("exclusive", () -> {
            Producer<byte[]> p = client.newProducer().topic(base + "e").create();
            Consumer<byte[]> c = client.newConsumer().topic(base + "e").subscriptionName("s")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            for (int i = 0; i < 100; i++) p.sendAsync(("m" + i).getBytes());
            p.flush();
            for (int i = 0; i < 100; i++) {
                Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
                check(new String(m.getData()).equals("m" + i), "order at " + i);
                c.acknowledge(m);
            }
            c.close();
            p.close();
        });
        for (SubscriptionType type : SHARING) step(type.name(), () -> {
            String topic = base + type.name();
            List<Consumer<byte[]>> cs = new ArrayList<>();
            for (int i = 0; i < 2; i++) cs.add(client.newConsumer().topic(topic).subscriptionName("s")
                    .subscriptionType(type).consumerName("c" + i).subscribe());
            Producer<byte[]> p = client.newProducer().topic(topic)
                    .batcherBuilder(BatcherBuilder.KEY_BASED).create();
            for (int i = 0; i < 200; i++) p.newMessage().key("k" + i % 8).value(("" + i).getBytes())
                    .sendAsync();
            p.flush();
            Set<String> seen = new HashSet<>();
            Map<String, Set<Integer>> owners = new HashMap<>();
            long until = System.currentTimeMillis() + 30000;
            while (seen.size() < 200 && System.currentTimeMillis() < until) for (int i = 0; i < 2; i++) {
                Message<byte[]> m = cs.get(i).receive(5, TimeUnit.MILLISECONDS);
                if (m == null) continue;
                check(seen.add(new String(m.getData())), "twice");
                owners.computeIfAbsent(m.getKey(), k -> new HashSet<>()).add(i);
                cs.get(i).acknowledge(m);
            }
            check(seen.size() == 200, "only " + seen.size());
            if (type == SubscriptionType.Key_Shared) for (Set<Integer> o : owners.values()) check(o.size() == 1, "a key at two");
            for (Consumer<byte[]> c : cs) c.close();
            p.close();
        });
        step("delayed", () -> {
            Consumer<byte[]> c = client.newConsumer().topic(base + "d").subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<byte[]> p = client.newProducer().topic(base + "d").create();
            long begun = System.currentTimeMillis();
            p.newMessage().value("later".getBytes()).deliverAfter(1, TimeUnit.SECONDS).send();
            Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
            check(m != null && System.currentTimeMillis() - begun >= 990, "too early");
            c.close();
            p.close();
        });
        step("retry and dead letter", () -> {
            Consumer<byte[]> c = client.newConsumer().topic(base + "r").subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).enableRetry(true)
                            .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(1)
                                    .deadLetterTopic(base + "r-dead").retryLetterTopic(base + "r-retry")
                                            .initialSubscriptionName("i").build()).subscribe();
            Producer<byte[]> p = client.newProducer().topic(base + "r").create();
            p.send("x".getBytes());
            for (int i = 0; i < 2; i++) {
                Message<byte[]> m = c.receive(30, TimeUnit.SECONDS);
                check(m != null, "no message " + i);
                c.reconsumeLater(m, 100, TimeUnit.MILLISECONDS);
            }
            Consumer<byte[]> dead = client.newConsumer().topic(base + "r-dead").subscriptionName("i")
                    .subscribe();
            check(dead.receive(30, TimeUnit.SECONDS) != null, "not on the dead letter topic");
            c.close();
            dead.close();
            p.close();
        });
        step("chunks", () -> {
            Consumer<byte[]> c = client.newConsumer().topic(base + "c").subscriptionName("s").subscribe();
            Producer<byte[]> p = client.newProducer().topic(base + "c").enableBatching(false)
                    .enableChunking(true).create();
            byte[] large = new byte[12 << 20];
            new Random(1).nextBytes(large);
            p.send(large);
            check(Arrays.equals(c.receive(60, TimeUnit.SECONDS).getData(), large), "another value");
            c.close();
            p.close();
        });
        step("json schema", () -> {
            Consumer<Item> c = client.newConsumer(Schema.JSON(Item.class)).topic(base + "j")
                    .subscriptionName("s").subscribe();
            Producer<Item> p = client.newProducer(Schema.JSON(Item.class)).topic(base + "j").create();
            Item item = new Item();
            item.name = "n";
            item.count = 3;
            p.send(item);
            check(c.receive(20, TimeUnit.SECONDS).getValue().count == 3, "value");
            Producer<byte[]> auto = client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(base + "j")
                    .create();
            auto.close();
            c.close();
            p.close();
        });
        step("avro schema", () -> {
            Consumer<Item> c = client.newConsumer(Schema.AVRO(Item.class)).topic(base + "av")
                    .subscriptionName("s").subscribe();
            Producer<Item> p = client.newProducer(Schema.AVRO(Item.class)).topic(base + "av").create();
            Item item = new Item();
            item.name = "n";
            item.count = 4;
            p.send(item);
            check(c.receive(20, TimeUnit.SECONDS).getValue().count == 4, "value");
            try {
                client.newProducer(Schema.INT32).topic(base + "av").create();
                check(false, "another type is taken");
            } catch (PulsarClientException.IncompatibleSchemaException error) {
            }
            c.close();
            p.close();
        });
        step("acknowledgement: of a batch in part, negative, cumulative", () -> {
            ConsumerBuilder<byte[]> shared = client.newConsumer().topic(base + "a").subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).isAckReceiptEnabled(true)
                    .enableBatchIndexAcknowledgment(true).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS);
            Consumer<byte[]> c = shared.subscribe();
            Producer<byte[]> p = client.newProducer().topic(base + "a").batchingMaxMessages(10)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS).compressionType(CompressionType.ZSTD).create();
            for (int i = 0; i < 10; i++) p.sendAsync(("" + i).getBytes());
            p.flush();
            for (int i = 0; i < 10; i++) {
                Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
                if (i < 2) c.acknowledge(m);
            }
            c.close();
            c = shared.subscribe();
            for (int i = 2; i < 10; i++) {
                Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
                check(new String(m.getData()).equals("" + i), "at " + i + " is " + new String(m.getData()));
                c.acknowledge(m);
            }
            p.send("x".getBytes());
            for (int i = 0; i < 3; i++) {
                Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
                check(m.getRedeliveryCount() == i, "count " + m.getRedeliveryCount() + " at " + i);
                if (i < 2) c.negativeAcknowledge(m);
                else c.acknowledge(m);
            }
            c.close();
            ConsumerBuilder<byte[]> one = client.newConsumer().topic(base + "a").subscriptionName("one")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).isAckReceiptEnabled(true);
            c = one.subscribe();
            for (int i = 0; i < 11; i++) {
                Message<byte[]> m = c.receive(20, TimeUnit.SECONDS);
                if (i == 10) c.acknowledgeCumulative(m);
            }
            c.close();
            c = one.subscribe();
            check(c.receive(300, TimeUnit.MILLISECONDS) == null, "again after its acknowledgement");
            c.close();
            p.close();
        });
        step("reader, table view", () -> {
            Producer<byte[]> p = client.newProducer().topic(base + "t").create();
            p.newMessage().key("a").value("1".getBytes()).send();
            MessageId id = p.newMessage().key("a").value("2".getBytes()).send();
            p.newMessage().key("b").value("3".getBytes()).send();
            Reader<byte[]> r = client.newReader().topic(base + "t").startMessageId(id).create();
            check(r.hasMessageAvailable() && new String(r.readNext(20, TimeUnit.SECONDS).getData())
                    .equals("3") && !r.hasMessageAvailable(), "reader");
            TableView<byte[]> v = client.newTableViewBuilder(Schema.BYTES).topic(base + "t").create();
            check(v.size() == 2 && new String(v.get("a")).equals("2"), "table view");
            v.close();
            r.close();
            p.close();
        });
        step("pattern", () -> {
            client.newProducer().topic(base + "pat-1").create().close();
            client.newProducer().topic(base + "pat-2").create().close();
            Consumer<byte[]> c = client.newConsumer().topicsPattern(base + "pat-.*").subscriptionName("s")
                    .subscribe();
            Producer<byte[]> p = client.newProducer().topic(base + "pat-2").create();
            p.send("x".getBytes());
            check(c.receive(20, TimeUnit.SECONDS) != null, "nothing");
            p.close();
            // By polling it would take a minute.
            long begun = System.currentTimeMillis();
            p = client.newProducer().topic(base + "pat-3").create();
            admin.topics().createPartitionedTopic(base + "pat-4", 2);
            Producer<byte[]> q = client.newProducer().topic(base + "pat-4").create();
            long until = begun + 30000;
            Set<String> from = new HashSet<>();
            while (from.size() < 3 && System.currentTimeMillis() < until) {
                p.send("y".getBytes());
                q.send("z".getBytes());
                for (Message<byte[]> m; (m = c.receive(50, TimeUnit.MILLISECONDS)) != null; ) {
                    from.add(m.getTopicName());
                    c.acknowledge(m);
                }
            }
            check(from.size() == 3, "heard of " + from);
            p.close();
            q.close();
            admin.topics().delete(base + "pat-3", true);
            c.close();
        });
        step("compaction on request", () -> {
            String topic = base + "compacted";
            Producer<byte[]> p = client.newProducer().topic(topic).create();
            for (int i = 0; i < 300; i++) p.newMessage().key("k" + i % 3).value(("" + i).getBytes()).sendAsync();
            p.newMessage().key("k2").value(new byte[0]).send();  // Taken out.
            try {
                admin.topics().triggerCompaction(topic);
            }
            catch (PulsarAdminException error) {
                if (!error.getMessage().contains("not possible over a shared store")) throw error;
                p.close();
                return;
            }
            long until = System.currentTimeMillis() + 60000;
            while (admin.topics().compactionStatus(topic).status != LongRunningProcessStatus.Status.SUCCESS
                    && System.currentTimeMillis() < until) Thread.sleep(50);
            check(admin.topics().compactionStatus(topic).status == LongRunningProcessStatus.Status.SUCCESS, "status");
            p.newMessage().key("k0").value("new".getBytes()).send();
            TableView<byte[]> v = client.newTableViewBuilder(Schema.BYTES).topic(topic).create();
            check(v.size() == 2 && new String(v.get("k0")).equals("new") && new String(v.get("k1")).equals("298"), "view");
            v.close();
            int[] seen = new int[2];
            for (int compacted = 0; compacted < 2; compacted++) {
                Reader<byte[]> r = client.newReader().topic(topic).startMessageId(MessageId.earliest)
                        .readCompacted(compacted == 1).create();
                for (; r.hasMessageAvailable(); seen[compacted]++) check(r.readNext(20, TimeUnit.SECONDS) != null, "read");
                r.close();
            }
            check(seen[0] == 302, "all others see " + seen[0]);
            check(seen[1] < 10, "a compacted reader sees " + seen[1]);
            p.close();
        });
        step("transactions are refused at once", () -> {
            long begun = System.currentTimeMillis();
            try {
                PulsarClient t = PulsarClient.builder().serviceUrl("pulsar://" + args[0])
                        .enableTransaction(true).build();
                t.newTransaction().build().get();
                check(false, "taken");
            }
            catch (Exception error) {
                check(error.toString().contains("doesn't enable"), error.toString());
            }
            check(System.currentTimeMillis() - begun < 10000,
                    "after " + (System.currentTimeMillis() - begun) + " ms");
        });
        step("admin: topic made, deduplication", () -> {
            admin.topics().createNonPartitionedTopic(base + "dd");
            admin.namespaces().setDeduplicationStatus(ns, true);
            check(admin.namespaces().getDeduplicationStatus(ns), "status");
        });
        step("deduplication", () -> {
            Producer<byte[]> p = client.newProducer().topic(base + "dd").producerName("p")
                    .initialSequenceId(-1).create();
            for (int i = 0; i < 5; i++) p.newMessage().sequenceId(i).value(("" + i).getBytes()).send();
            for (int i = 3; i < 8; i++) p.newMessage().sequenceId(i).value(("" + i).getBytes()).send();
            p.close();
            p = client.newProducer().topic(base + "dd").producerName("p").create();
            check(p.getLastSequenceId() == 7, "last " + p.getLastSequenceId());
            p.close();
            Consumer<byte[]> c = client.newConsumer().topic(base + "dd").subscriptionName("s")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            for (int i = 0; i < 8; i++) check(new String(c.receive(20, TimeUnit.SECONDS).getData())
                    .equals("" + i), "at " + i);
            check(c.receive(300, TimeUnit.MILLISECONDS) == null, "more");
            c.close();
        });
        step("admin: namespace policies", () -> {
            admin.namespaces().removeDeduplicationStatus(ns);
            admin.namespaces().setRetention(ns, new RetentionPolicies(60, 100));
            check(admin.namespaces().getRetention(ns).getRetentionTimeInMinutes() == 60, "retention");
            admin.namespaces().removeRetention(ns);
            admin.namespaces().setNamespaceMessageTTL(ns, 600);
            check(admin.namespaces().getNamespaceMessageTTL(ns) == 600, "ttl");
            admin.namespaces().removeNamespaceMessageTTL(ns);
            check(admin.namespaces().getNamespaceMessageTTL(ns) == null, "no ttl");
            admin.namespaces().setBacklogQuota(ns, BacklogQuota.builder().limitSize(1 << 30)
                    .retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build());
            check(admin.namespaces().getBacklogQuotaMap(ns).size() == 1, "quota");
            admin.namespaces().removeBacklogQuota(ns);
            check(admin.namespaces().getBacklogQuotaMap(ns).isEmpty(), "no quota");
            admin.namespaces().setSchemaCompatibilityStrategy(ns, SchemaCompatibilityStrategy.BACKWARD);
            check(admin.namespaces().getSchemaCompatibilityStrategy(ns) == SchemaCompatibilityStrategy.BACKWARD, "strategy");
            admin.namespaces().setSchemaCompatibilityStrategy(ns, SchemaCompatibilityStrategy.UNDEFINED);
        });
        step("terminate and the end of a topic", () -> {
            Producer<byte[]> p = client.newProducer().topic(base + "end").create();
            p.send("x".getBytes());
            Consumer<byte[]> c = client.newConsumer().topic(base + "end").subscriptionName("s")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            admin.topics().terminateTopic(base + "end");
            check(!c.hasReachedEndOfTopic(), "too early");
            c.acknowledge(c.receive(20, TimeUnit.SECONDS));
            long until = System.currentTimeMillis() + 20000;
            while (!c.hasReachedEndOfTopic() && System.currentTimeMillis() < until) Thread.sleep(20);
            check(c.hasReachedEndOfTopic(), "not told");
            long begun = System.currentTimeMillis();
            try {
                p.send("y".getBytes());
                check(false, "taken");
            } catch (PulsarClientException error) {
                check(System.currentTimeMillis() - begun < 10000, "late: " + error);
            }
            try {
                client.newProducer().topic(base + "end").create();
                check(false, "opened");
            } catch (PulsarClientException.TopicTerminatedException error) {
            }
            c.close();
        });
        step("admin: topics, stats, subscriptions, schemas", () -> {
            admin.topics().createPartitionedTopic(base + "parts", 3);
            check(admin.topics().getPartitionedTopicMetadata(base + "parts").partitions == 3, "partitions");
            admin.topics().updatePartitionedTopic(base + "parts", 4);
            admin.topics().getPartitionedStats(base + "parts", true);
            admin.topics().getList(ns);
            admin.topics().getPartitionedTopicList(ns);
            admin.topics().createSubscription(base + "e", "other", MessageId.earliest);
            admin.topics().getSubscriptions(base + "e");
            admin.topics().skipMessages(base + "e", "other", 3);
            admin.topics().resetCursor(base + "e", "other", 0L);
            admin.topics().resetCursor(base + "e", "other", MessageId.latest);
            admin.topics().skipAllMessages(base + "e", "other");
            admin.topics().getStats(base + "e");
            admin.topics().getInternalStats(base + "e");
            admin.topics().getLastMessageId(base + "e");
            admin.topics().deleteSubscription(base + "e", "other");
            admin.schemas().getSchemaInfo(base + "j");
            admin.schemas().getAllSchemas(base + "j");
            admin.tenants().getTenants();
            admin.clusters().getClusters();
            admin.namespaces().getNamespaces("public");
            admin.namespaces().getPolicies(ns);
            admin.brokers().healthcheck();
            admin.topics().deletePartitionedTopic(base + "parts");
            admin.topics().delete(base + "e", true);
        });
        step("admin: cluster, tenants, namespaces", () -> {
            check(admin.clusters().getClusters().equals(List.of("standalone")), "clusters");
            check(!admin.brokers().getActiveBrokers("standalone").isEmpty(), "brokers");
            admin.brokers().healthcheck();
            check(!admin.brokers().getVersion().isEmpty(), "version");
            TenantInfo tenant = TenantInfo.builder().allowedClusters(Set.of("standalone")).build();
            admin.tenants().createTenant("shop", tenant);
            admin.tenants().updateTenant("shop", tenant);
            check(admin.tenants().getTenants().contains("shop"), "tenants");
            check(admin.tenants().getTenantInfo("shop").getAllowedClusters().contains("standalone"), "tenant");
            admin.namespaces().createNamespace("shop/cash");
            check(admin.namespaces().getNamespaces("shop").equals(List.of("shop/cash")), "namespaces");
            check(admin.namespaces().getPolicies("shop/cash") != null, "policies");
            try {
                admin.namespaces().createNamespace("shop/cash");
                check(false, "made twice");
            } catch (PulsarAdminException.ConflictException error) {
            }
            admin.namespaces().deleteNamespace("shop/cash");
            admin.tenants().deleteTenant("shop");
            check(!admin.tenants().getTenants().contains("shop"), "deleted");
        });
        step("admin: topics of a namespace", () -> {
            admin.topics().createNonPartitionedTopic(base + "a1");
            try {
                admin.topics().createNonPartitionedTopic(base + "a1");
                check(false, "made twice");
            } catch (PulsarAdminException.ConflictException error) {
            }
            admin.topics().createPartitionedTopic(base + "a2", 2);
            check(admin.topics().getList(ns).contains(base + "a1"), "list");
            check(admin.topics().getPartitionedTopicList(ns).contains(base + "a2"), "partitioned");
            admin.topics().updatePartitionedTopic(base + "a2", 3);
            check(admin.topics().getPartitionedTopicMetadata(base + "a2").partitions == 3, "grown");
            check(admin.topics().getPartitionedStats(base + "a2", true).getPartitions().size() == 3, "stats");
            check(admin.lookups().lookupTopic(base + "a1").startsWith("pulsar://"), "lookup");
            admin.topics().deletePartitionedTopic(base + "a2");
            admin.topics().unload(base + "a1");
            admin.namespaces().unload(ns);
            try {
                admin.topics().getStats(base + "nowhere");
                check(false, "found");
            } catch (PulsarAdminException.NotFoundException error) {
            }
        });
        step("admin: subscriptions, messages", () -> {
            String topic = base + "a1";
            Producer<byte[]> p = client.newProducer().topic(topic).create();
            List<MessageId> ids = new ArrayList<>();
            for (int i = 0; i < 5; i++) ids.add(p.newMessage().key("k").property("a", "b")
                    .value(("" + i).getBytes()).send());
            p.close();
            admin.topics().createSubscription(topic, "s", MessageId.earliest);
            check(admin.topics().getSubscriptions(topic).equals(List.of("s")), "subscriptions");
            check(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog() == 5, "backlog");
            List<Message<byte[]>> peeked = admin.topics().peekMessages(topic, "s", 2);
            check(peeked.size() == 2 && new String(peeked.get(1).getData()).equals("1"), "peek");
            check(peeked.get(0).getProperties().get("a").equals("b"), "properties");
            admin.topics().skipMessages(topic, "s", 2);
            check(new String(admin.topics().peekMessages(topic, "s", 1).get(0).getData()).equals("2"), "skipped");
            admin.topics().resetCursor(topic, "s", ids.get(1));
            check(new String(admin.topics().peekMessages(topic, "s", 1).get(0).getData()).equals("1"), "by id");
            admin.topics().resetCursor(topic, "s", 1L);
            check(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog() == 5, "by time");
            admin.topics().skipAllMessages(topic, "s");
            check(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog() == 0, "skip all");
            String last = admin.topics().getLastMessageId(topic).toString();
            check(last.equals(ids.get(4).toString()), last + " is not " + ids.get(4));
            String[] parts = last.split(":");
            Message<byte[]> one = admin.topics().getMessageById(topic, Long.parseLong(parts[0]),
                    Long.parseLong(parts[1]));
            check(new String(one.getData()).equals("4"), "by its id");
            check(admin.topics().getMessageIdByTimestamp(topic, 1L).toString().equals(ids.get(0).toString()), "first");
            check(admin.topics().getInternalStats(topic).lastConfirmedEntry.equals(parts[0] + ":" + parts[1]), "internal");
            admin.topics().resetCursor(topic, "s", 1L);
            admin.topics().truncate(topic);
            check(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog() == 0, "truncated");
            admin.topics().deleteSubscription(topic, "s");
            check(admin.topics().getSubscriptions(topic).isEmpty(), "deleted");
        });
        step("admin: schemas", () -> {
            String topic = base + "a3";
            admin.topics().createNonPartitionedTopic(topic);
            SchemaInfo info = Schema.JSON(Item.class).getSchemaInfo();
            admin.schemas().createSchema(topic, info);
            check(admin.schemas().getSchemaInfo(topic).getType() == SchemaType.JSON, "type");
            check(admin.schemas().getSchemaInfo(topic, 0).getType() == SchemaType.JSON, "version");
            check(admin.schemas().getAllSchemas(topic).size() == 1, "all");
            check(admin.schemas().testCompatibility(topic, info).isCompatibility(), "compatible");
        });
        step("admin: non-persistent topics", () -> {
            String live = "non-persistent://" + ns + "/live";
            admin.topics().createNonPartitionedTopic(live);
            check(admin.topics().getList(ns).contains(live), "list");
            admin.topics().getStats(live);
            admin.topics().delete(live);
            admin.topics().createPartitionedTopic(live, 2);
            check(admin.topics().getPartitionedTopicMetadata(live).partitions == 2, "partitions");
            admin.topics().deletePartitionedTopic(live);
        });
        step("non-persistent", () -> {
            String live = "non-persistent://" + ns + "/live2";
            Consumer<byte[]> c = client.newConsumer().topic(live).subscriptionName("s").subscribe();
            Producer<byte[]> p = client.newProducer().topic(live).create();
            Message<byte[]> m = null;
            for (int i = 0; m == null && i < 100; i++) {
                p.send("x".getBytes());
                m = c.receive(200, TimeUnit.MILLISECONDS);
            }
            check(m != null, "nothing came");
            c.close();
            p.close();
        });
        client.close();
        admin.close();
        System.exit(failed == 0 ? 0 : 1);
    }
    public static class Item {
        public String name;
        public int count;
    }
}

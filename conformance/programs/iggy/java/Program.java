// Iggy's Java client, of the version that the property `iggy.version` names: `Program work|read HOST:PORT`,
// as scenario.rs says.

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.iggy.client.blocking.tcp.IggyTcpClient;
import org.apache.iggy.consumergroup.Consumer;
import org.apache.iggy.identifier.ConsumerId;
import org.apache.iggy.identifier.StreamId;
import org.apache.iggy.identifier.TopicId;
import org.apache.iggy.identifier.UserId;
import org.apache.iggy.message.Message;
import org.apache.iggy.message.Partitioning;
import org.apache.iggy.message.PollingStrategy;
import org.apache.iggy.topic.CompressionAlgorithm;
import org.apache.iggy.user.UserStatus;

public class Program {
    interface Step {
        Object run() throws Exception;
    }

    static final String NAME = "java " + System.getProperty("iggy.version");
    static final String USER = NAME.replace(' ', '-'); // All versions run at the same time.
    static final StreamId STREAM = StreamId.of(NAME);
    static final TopicId TOPIC = TopicId.of("tp");
    static final Optional<Long> FIRST = Optional.of(0L);
    static int good = 0, bad = 0;

    static void check(String name, Step step) {
        String reason = "";
        try {
            if (!Boolean.FALSE.equals(step.run())) {
                good++;
                return;
            }
        } catch (Throwable error) {
            reason = " " + error;
        }
        bad++;
        System.out.println("BAD " + name + reason);
    }

    static void connect(IggyTcpClient client) {
        try {
            IggyTcpClient.class.getMethod("connect").invoke(client);
        } catch (NoSuchMethodException isConnected) {
            return; // 0.6.0 connects when it is made.
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static IggyTcpClient client(String address) {
        String[] parts = address.split(":");
        IggyTcpClient client = new IggyTcpClient(parts[0], Integer.parseInt(parts[1]));
        connect(client);
        client.users().login("iggy", "iggy");
        return client;
    }

    static List<String> poll(
            IggyTcpClient c, Optional<Long> partition, Consumer consumer, PollingStrategy strategy, long count, boolean commit) {
        List<String> texts = new ArrayList<>();
        for (var message : c.messages().pollMessages(STREAM, TOPIC, partition, consumer, strategy, count, commit).messages()) {
            texts.add(new String(message.payload()));
        }
        return texts;
    }

    static Object send(IggyTcpClient c, StreamId stream, TopicId topic, Partitioning to, String... texts) {
        List<Message> messages = new ArrayList<>();
        for (String text : texts) {
            messages.add(Message.of(text));
        }
        c.messages().sendMessages(stream, topic, to, messages);
        return true;
    }

    static void work(String address) {
        IggyTcpClient c = client(address);
        check("ping", () -> { c.system().ping(); return true; });
        check("no stream", () -> c.streams().getStream(STREAM).isEmpty());
        check("create stream", () -> c.streams().createStream(NAME).name().equals(NAME));
        check("streams", () -> c.streams().getStreams().stream().anyMatch(one -> one.name().equals(NAME)));
        check("create topic", () -> c.topics().createTopic(STREAM, 2L, CompressionAlgorithm.None, BigInteger.ZERO,
                BigInteger.ZERO, Optional.empty(), "tp").partitionsCount() == 2);
        check("topic", () -> c.topics().getTopic(STREAM, TOPIC).get().partitions().size() == 2);
        check("topics", () -> c.topics().getTopics(STREAM).size() == 1);
        check("send", () -> send(c, STREAM, TOPIC, Partitioning.partitionId(0L), "m0", "m1", "m2"));
        check("send in turn", () -> send(c, STREAM, TOPIC, Partitioning.balanced(), "b"));
        check("send by key", () -> send(c, STREAM, TOPIC, Partitioning.messagesKey("key-1"), "k"));
        Consumer one = Consumer.of(ConsumerId.of(1L));
        check("first", () -> poll(c, FIRST, one, PollingStrategy.first(), 2L, false).equals(List.of("m0", "m1")));
        check("last", () -> poll(c, FIRST, one, PollingStrategy.last(), 1L, false).size() == 1);
        check("offset", () -> poll(c, FIRST, one, PollingStrategy.offset(BigInteger.TWO), 1L, false).equals(List.of("m2")));
        check("timestamp", () -> poll(c, FIRST, one, PollingStrategy.timestamp(BigInteger.ONE), 9L, false).size() >= 3);
        check("next", () -> poll(c, FIRST, one, PollingStrategy.next(), 2L, true).size() == 2);
        check("stored", () -> c.consumerOffsets().getConsumerOffset(STREAM, TOPIC, FIRST, one).get()
                .storedOffset().intValue() == 1);
        check("store", () -> { c.consumerOffsets().storeConsumerOffset(STREAM, TOPIC, FIRST, one, BigInteger.ZERO); return true; });
        check("after store", () -> poll(c, FIRST, one, PollingStrategy.next(), 1L, false).equals(List.of("m1")));
        groups(c, address);
        check("me", () -> c.system().getMe().consumerGroupsCount() == 0);
        check("clients", () -> c.system().getClients().size() >= 1);
        check("stats", () -> c.system().getStats().topicsCount() != null);
        check("grow", () -> { c.partitions().createPartitions(STREAM, TOPIC, 2L); return c.topics().getTopic(STREAM, TOPIC).get().partitionsCount() == 4; });
        check("shrink", () -> { c.partitions().deletePartitions(STREAM, TOPIC, 2L); return c.topics().getTopic(STREAM, TOPIC).get().partitionsCount() == 2; });
        users(c);
        check("update topic", () -> { c.topics().updateTopic(STREAM, TOPIC, CompressionAlgorithm.None, BigInteger.valueOf(5000000),
                BigInteger.ZERO, Optional.empty(), "tp"); return true; });
        check("delete topic", () -> { c.topics().deleteTopic(STREAM, TOPIC); return true; });
        check("delete stream", () -> { c.streams().deleteStream(STREAM); return true; });
        check("share", () -> send(c, StreamId.of("shared"), TopicId.of("all"), Partitioning.partitionId(0L), "from " + NAME));
        check("logout", () -> { c.users().logout(); return true; });
        check("login again", () -> { c.users().login("iggy", "iggy"); return true; });
        System.out.println(good + " ok, " + bad + " bad");
    }

    static void groups(IggyTcpClient c, String address) {
        ConsumerId group = ConsumerId.of("grp");
        IggyTcpClient second = client(address);
        check("create group", () -> c.consumerGroups().createConsumerGroup(STREAM, TOPIC, "grp").name().equals("grp"));
        for (IggyTcpClient member : List.of(c, second)) {
            check("join", () -> { member.consumerGroups().joinConsumerGroup(STREAM, TOPIC, group); return true; });
        }
        check("two members", () -> c.consumerGroups().getConsumerGroup(STREAM, TOPIC, group).get().members().size() == 2);
        check("groups", () -> c.consumerGroups().getConsumerGroups(STREAM, TOPIC).size() == 1);
        check("each message once", () -> {
            List<String> read = new ArrayList<>();
            for (int turn = 0; turn < 4; turn++) {
                for (IggyTcpClient member : List.of(c, second)) {
                    read.addAll(poll(member, Optional.empty(), Consumer.group(group), PollingStrategy.next(), 9L, true));
                }
            }
            read.sort(null);
            return read.equals(List.of("b", "k", "m0", "m1", "m2"));
        });
        for (IggyTcpClient member : List.of(second, c)) {
            check("leave", () -> { member.consumerGroups().leaveConsumerGroup(STREAM, TOPIC, group); return true; });
        }
        check("delete group", () -> { c.consumerGroups().deleteConsumerGroup(STREAM, TOPIC, group); return true; });
    }

    static void users(IggyTcpClient c) {
        check("users", () -> c.users().getUsers().size() >= 1);
        check("create user", () -> c.users().createUser(USER, "secret", UserStatus.Active, Optional.empty()).username().equals(USER));
        check("user", () -> c.users().getUser(UserId.of(USER)).isPresent());
        check("password", () -> { c.users().changePassword(UserId.of(USER), "secret", "better"); return true; });
        check("delete user", () -> { c.users().deleteUser(UserId.of(USER)); return true; });
        check("token", () -> c.personalAccessTokens().createPersonalAccessToken(USER, BigInteger.ZERO).token().length() > 10);
        check("tokens", () -> c.personalAccessTokens().getPersonalAccessTokens().size() >= 1);
        check("delete token", () -> { c.personalAccessTokens().deletePersonalAccessToken(USER); return true; });
    }

    static void read(String address) {
        var found = client(address).messages().pollMessages(StreamId.of("shared"), TopicId.of("all"), FIRST,
                Consumer.of(ConsumerId.of("reader")), PollingStrategy.first(), 1000L, false);
        for (var message : found.messages()) {
            System.out.println(new String(message.payload()));
        }
    }

    public static void main(String[] arguments) {
        if (arguments[0].equals("work")) {
            work(arguments[1]);
        } else {
            read(arguments[1]);
        }
        System.exit(0);
    }
}

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.pulsar.client.admin.GetStatsOptions;
import org.apache.pulsar.client.admin.ListNamespaceTopicsOptions;
import org.apache.pulsar.client.admin.ListTopicsOptions;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** Calls methods of Java's admin client: a line of standard input is a signature and a JSON value for each parameter, with
 *  spaces between. Prints a JSON object per line: whether the call succeeded, and its result or its error. The first output line
 *  lists the signatures of each part of the client. Arguments: Pulsar's HOST:PORT, the URL of the HTTP listener, and the milliseconds
 *  after each change (Apache shows a policy of a topic a moment later). The line "produce TOPIC" writes five messages. The word LEDGER stands for the ledger of the last returned message id. */
public class Calls {
    private static final ObjectMapper JSON = ObjectMapperFactory.create();
    private static final int CALL_S = 60;

    public static void main(String[] args) throws Exception {
        PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(args[1]).readTimeout(CALL_S, TimeUnit.SECONDS)
            .requestTimeout(CALL_S, TimeUnit.SECONDS).build();
        Map<String, Object> parts = new LinkedHashMap<>();
        for (Object part : List.of(admin.brokers(), admin.clusters(), admin.tenants(), admin.namespaces(), admin.topics(),
                admin.topicPolicies(), admin.schemas(), admin.brokerStats(), admin.lookups(), admin.nonPersistentTopics(),
                admin.resourcegroups(), admin.resourceQuotas(), admin.proxyStats(), admin.transactions())) {
            for (Class<?> kind : part.getClass().getInterfaces()) {
                parts.put(kind.getSimpleName(), part);
            }
        }
        Map<String, Method> methods = new TreeMap<>();
        parts.values().forEach(part -> addMethods(part, methods));
        System.out.println(JSON.writeValueAsString(methods.keySet()));
        String ledger = "0";
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.replace("LEDGER", ledger).split(" ");
            Method method = methods.get(words[0]);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("line", line);
            try {
                if (words[0].equals("produce")) {
                    produce(args[0], words[1]);
                    answer.put("ok", true);
                    answer.put("text", "");
                    System.out.println(JSON.writeValueAsString(answer));
                    continue;
                }
                Object result = method == null ? "no such method" : call(parts.get(words[0].split("\\.")[0]), method, words);
                answer.put("ok", method != null);
                answer.put("text", JSON.writeValueAsString(shown(result)));
                if (result instanceof MessageIdImpl id) {
                    ledger = Long.toString(id.getLedgerId());
                }
            } catch (PulsarAdminException error) {
                answer.put("ok", false);
                answer.put("text", error.getStatusCode() + " " + error.getHttpError());
            } catch (Exception error) {
                answer.put("ok", false);
                answer.put("text", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
            if (method != null && method.getReturnType() == void.class) {
                Thread.sleep(Long.parseLong(args[2]));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void addMethods(Object part, Map<String, Method> methods) {
        for (Class<?> kind : part.getClass().getInterfaces()) {
            for (Method method : kind.getMethods()) {
                if (!method.getName().endsWith("Async") && !Modifier.isStatic(method.getModifiers())) {
                    List<String> names = new ArrayList<>();
                    for (Class<?> parameter : method.getParameterTypes()) {
                        names.add(parameter.getSimpleName());
                    }
                    methods.put(kind.getSimpleName() + "." + method.getName() + "(" + String.join(",", names) + ")", method);
                }
            }
        }
    }

    private static Object call(Object part, Method method, String[] words) throws Exception {
        Type[] types = method.getGenericParameterTypes();
        Object[] values = new Object[types.length];
        for (int number = 0; number < types.length; number++) {
            values[number] = value(JSON.constructType(types[number]), words[number + 1]);
        }
        try {
            Object result = method.invoke(part, values);
            return result instanceof CompletableFuture<?> future ? future.get(CALL_S, TimeUnit.SECONDS) : result;
        } catch (InvocationTargetException | ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    private static void produce(String address, String topic) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl("pulsar://" + address).build();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < 5; number++) {
                producer.newMessage().key("k").property("a", "b").value(("m" + number).getBytes(StandardCharsets.UTF_8)).send();
            }
        }
    }

    private static Object value(JavaType type, String word) throws Exception {
        Class<?> raw = type.getRawClass();
        if (raw == String.class) {
            return word;
        }
        if (raw == MessageId.class) {
            String[] numbers = word.split(":");
            return word.equals("earliest") ? MessageId.earliest : word.equals("latest") ? MessageId.latest
                : new MessageIdImpl(Long.parseLong(numbers[0]), Long.parseLong(numbers[1]), -1);
        }
        if (raw == Optional.class) {
            return word.equals("none") ? Optional.empty() : Optional.of(value(type.getReferencedType(), word));
        }
        if (raw == GetStatsOptions.class) {
            JsonNode wanted = JSON.readTree(word);
            return GetStatsOptions.builder().getPreciseBacklog(wanted.path("precise").asBoolean())
                .subscriptionBacklogSize(wanted.path("size").asBoolean()).getEarliestTimeInBacklog(wanted.path("earliest").asBoolean())
                .excludePublishers(wanted.path("excludePublishers").asBoolean())
                .excludeConsumers(wanted.path("excludeConsumers").asBoolean()).build();
        }
        if (raw == ListTopicsOptions.class) {
            return ListTopicsOptions.builder().includeSystemTopic(JSON.readTree(word).path("system").asBoolean()).build();
        }
        if (raw == ListNamespaceTopicsOptions.class) {
            return ListNamespaceTopicsOptions.builder().includeSystemTopic(JSON.readTree(word).path("system").asBoolean()).build();
        }
        if (raw == SchemaInfo.class) {
            JsonNode schema = JSON.readTree(word);
            return SchemaInfo.builder().name(schema.path("name").asText()).schema(schema.path("schema").binaryValue())
                .type(SchemaType.valueOf(schema.path("type").asText()))
                .properties(JSON.convertValue(schema.path("properties"), new TypeReference<Map<String, String>>() { })).build();
        }
        if (raw == Predicate.class) {
            return (Predicate<Object>) backlog -> true;
        }
        boolean isText = raw.isEnum() && !word.startsWith("\"");
        return JSON.readValue(isText ? JSON.writeValueAsString(word) : word, type);
    }

    private static Object shown(Object result) {
        if (result instanceof Message<?> message) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("data", new String(message.getData(), StandardCharsets.UTF_8));
            fields.put("key", message.getKey());
            fields.put("properties", message.getProperties());
            fields.put("hasTime", message.getPublishTime() > 0);
            return fields;
        }
        if (result instanceof List<?> list) {
            return list.stream().map(Calls::shown).toList();
        }
        return result instanceof MessageId ? result.toString() : result;
    }
}

import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.deser.BeanDeserializerBase;
import com.fasterxml.jackson.databind.deser.DefaultDeserializationContext;
import com.fasterxml.jackson.databind.deser.SettableBeanProperty;
import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.lang.reflect.Type;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import javax.ws.rs.HttpMethod;
import javax.ws.rs.Path;
import javax.ws.rs.QueryParam;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Prints the calls of Apache Pulsar's admin API that its broker's classes declare: method, path, query parameters,
 * and the fields of the body as Apache's JSON library reads them. Run with the broker's libraries:
 * java -cp 'LIB/*' AdminCalls.java
 */
public final class AdminCalls {
    private static final String CLASSES = "org.apache.pulsar.broker.admin.v2.";
    private static final List<String> NAMES = List.of("Clusters", "ExtPersistentTopics", "Namespaces",
            "NonPersistentTopics", "PersistentTopics", "SchemasResource", "Tenants");
    private static final int DEPTH_MAX = 5;
    private static final ObjectMapper MAPPER = ObjectMapperFactory.create();

    public static void main(String[] arguments) throws Exception {
        Set<String> lines = new TreeSet<>();
        for (String name : NAMES) {
            Class<?> resource = Class.forName(CLASSES + name);
            String root = resource.getAnnotation(Path.class).value();
            for (Method method : resource.getMethods()) {
                String verb = verb(method);
                if (verb != null && !verb.equals("GET")) {
                    Path path = method.getAnnotation(Path.class);
                    lines.add(verb + "\t" + root + (path == null ? "" : path.value()) + "\t" + content(method));
                }
            }
        }
        System.out.println("method\tpath\tquery\tbody");
        lines.forEach(System.out::println);
    }

    private static String verb(Method method) {
        for (Annotation annotation : method.getAnnotations()) {
            HttpMethod verb = annotation.annotationType().getAnnotation(HttpMethod.class);
            if (verb != null) {
                return verb.value();
            }
        }
        return null;
    }

    private static String content(Method method) throws Exception {
        Set<String> query = new TreeSet<>();
        String body = "";
        for (Parameter parameter : method.getParameters()) {
            QueryParam named = parameter.getAnnotation(QueryParam.class);
            if (named != null) {
                query.add(named.value());
            } else if (!isOfRequest(parameter)) {
                body = fields(parameter.getParameterizedType(), 0);
            }
        }
        return String.join(",", query) + "\t" + body;
    }

    private static boolean isOfRequest(Parameter parameter) {
        for (Annotation annotation : parameter.getAnnotations()) {
            if (annotation.annotationType().getName().startsWith("javax.ws.rs.")
                    && !annotation.annotationType().getSimpleName().equals("DefaultValue")) {
                return true;
            }
        }
        return false;
    }

    private static String fields(Type declared, int depth) throws Exception {
        JavaType type = MAPPER.constructType(declared);
        String name = type.getRawClass().getSimpleName();
        if (type.isMapLikeType()) {
            return "Map<" + fields(type.getContentType(), depth + 1) + ">";
        }
        if (type.isCollectionLikeType() || type.isArrayType()) {
            return "List<" + fields(type.getContentType(), depth + 1) + ">";
        }
        DefaultDeserializationContext context = ((DefaultDeserializationContext) MAPPER.getDeserializationContext())
                .createInstance(MAPPER.getDeserializationConfig(), null, MAPPER.getInjectableValues());
        Object reader = context.findRootValueDeserializer(type);
        if (depth > DEPTH_MAX || type.isEnumType() || !(reader instanceof BeanDeserializerBase)) {
            return name;
        }
        TreeMap<String, String> shown = new TreeMap<>();
        for (Iterator<SettableBeanProperty> each = ((BeanDeserializerBase) reader).properties(); each.hasNext(); ) {
            SettableBeanProperty property = each.next();
            shown.put(property.getName(), fields(property.getType(), depth + 1));
        }
        StringBuilder text = new StringBuilder();
        shown.forEach((field, kind) -> text.append(text.isEmpty() ? "" : ",").append(field).append(":").append(kind));
        return name + "{" + text + "}";
    }
}

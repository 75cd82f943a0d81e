import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools in one process: `ConsoleTools SECONDS`. A line of the input has a class, the
 * tool's own input and its arguments, with tabs between them. The answer is a line with the exit
 * status, the output, `@err`, the output of errors, `@end`.
 */
public class ConsoleTools {
    /** Thrown in place of the end of the process. */
    static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        Exit.setHaltProcedure((status, message) -> { throw new Ended(status); });
        Exit.setShutdownHookAdder((name, hook) -> {});
        ExecutorService threads =
                Executors.newCachedThreadPool(
                        work -> {
                            Thread thread = new Thread(work);
                            thread.setDaemon(true);
                            return thread;
                        });
        long limit = Long.parseLong(arguments[0]);
        String line;
        while ((line = lines.readLine()) != null) {
            String[] parts = line.split("\t", -1);
            String input = parts[1].replace("\\n", "\n").replace("\\t", "\t");
            String[] rest = Arrays.copyOfRange(parts, 2, parts.length);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            PrintStream outStream = new PrintStream(out, true);
            PrintStream errorStream = new PrintStream(errors, true);
            System.setOut(outStream);
            System.setErr(errorStream);
            System.setIn(new ByteArrayInputStream(input.getBytes()));
            Future<Integer> run =
                    threads.submit(() -> status(parts[0], rest, outStream, errorStream));
            String status;
            try {
                status = String.valueOf(run.get(limit, TimeUnit.SECONDS));
            } catch (TimeoutException late) {
                run.cancel(true);
                status = "timeout";
            } catch (ExecutionException failed) {
                status = failed.toString();
            }
            answers.println(status);
            answers.print(out);
            answers.println("\n@err");
            answers.print(errors);
            answers.println("\n@end");
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Runs a tool; the console of Scala has streams of its own. */
    static int status(String name, String[] arguments, PrintStream out, PrintStream errors) {
        try {
            scala.Console$ console = scala.Console$.MODULE$;
            console.withOut(
                    out,
                    new scala.runtime.AbstractFunction0<Object>() {
                        public Object apply() {
                            return console.withErr(
                                    errors,
                                    new scala.runtime.AbstractFunction0<Object>() {
                                        public Object apply() {
                                            run(name, arguments);
                                            return null;
                                        }
                                    });
                        }
                    });
            return 0;
        } catch (Throwable failure) {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                if (cause instanceof Ended) {
                    return ((Ended) cause).status;
                }
            }
            failure.printStackTrace(errors);
            return 1;
        }
    }

    static void run(String name, String[] arguments) {
        try {
            Class<?> tool = Class.forName(name);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            Throwable cause = failure.getCause();
            throw cause instanceof RuntimeException
                    ? (RuntimeException) cause
                    : new RuntimeException(cause);
        } catch (ReflectiveOperationException missing) {
            throw new RuntimeException(missing);
        }
    }
}

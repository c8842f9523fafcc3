import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, which starts in seconds. A line of the input has a
 * class and its arguments with tabs between them. After the output of each comes a line with NUL and its exit code.
 */
public class Tools {
    static class Ended extends Error {}

    /** Of the tool that runs. Tools catch the error that ends them, and end once more. */
    static Integer exitCode;

    public static void main(String[] unused) throws Exception {
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? code : exitCode;
            throw new Ended();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            System.out.println("\u0000" + run(line.split("\t")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(String[] words) throws Exception {
        exitCode = null;
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (exitCode != null) {
                return exitCode;
            }
            error.getCause().printStackTrace(System.out);
            return 1;
        }
    }
}

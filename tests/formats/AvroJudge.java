import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;

/** Reads JSON lists of Avro schemas' texts, and writes what Java's parser says to the last of each:
 * "" where it takes it after the ones before, as a registry's client does with references.
 */
public final class AvroJudge {
    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<String> said = new ArrayList<>();
        for (List<String> texts : json.readValue(System.in, List[].class)) {
            // As Spark's to_avro does, for which a default that no row takes may be anything.
            Schema.Parser parser = new Schema.Parser().setValidateDefaults(false);
            String found = "";
            try {
                for (String text : texts) {
                    parser.parse(text);
                }
            } catch (RuntimeException | StackOverflowError error) {
                found = error.toString().lines().findFirst().orElse("");
            }
            said.add(found);
        }
        json.writerWithDefaultPrettyPrinter().writeValue(System.out, said);
    }
}

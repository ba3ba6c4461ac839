import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** Writes the golden cases. Argument: the folder for the JSON files. */
final class Generate {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Generate() { }

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[0]);
        write(folder, "batches", BatchCases.all());
        write(folder, "codecs", CodecCases.all());
        write(folder, "produce", ProduceCases.all());
        write(folder, "keys", KeyCases.all());
        write(folder, "requests", RequestCases.all());
        write(folder, "responses", ResponseCases.all());
        write(folder, "transactional", TransactionalCases.all());
        write(folder, "racks", RackCases.all());
        write(folder, "record_sets", RecordSets.all());
        write(folder, "sasl", SaslConversations.all());
        write(folder, "texts", TextCases.all());
        write(folder, "words", WordCases.all());
    }

    /** One case a line: small files, and differences that can be read. */
    private static void write(Path folder, String name, ArrayNode cases) throws IOException {
        StringBuilder text = new StringBuilder("{\n\"client\": ");
        text.append(MAPPER.writeValueAsString("kafka-clients " + AppInfoParser.getVersion()));
        text.append(",\n\"apis\": ").append(MAPPER.writeValueAsString(Versions.json()));
        text.append(",\n\"cases\": [\n");
        for (int i = 0; i < cases.size(); i++) {
            text.append(MAPPER.writeValueAsString(cases.get(i)));
            text.append(i + 1 < cases.size() ? ",\n" : "\n");
        }
        Files.writeString(folder.resolve(name + ".json"), text.append("]\n}\n"));
    }
}

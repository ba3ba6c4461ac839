import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The rows of one batch, and how JSON states them: one by one, or as a template. */
record Rows(List<Row> list, JsonNode json) {
    static final long NOON = 1_700_000_000_000L;
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    /** One header of a row. Keys may repeat, values may be null. */
    record Entry(String key, Blob value) { }

    /** One row. */
    record Row(long timestamp, Blob key, Blob value, List<Entry> headers) {
        Header[] javaHeaders() {
            return headers.stream()
                .map(entry -> (Header) new RecordHeader(entry.key, Blob.bytesOf(entry.value)))
                .toArray(Header[]::new);
        }

        ObjectNode json() {
            ObjectNode node = JSON.objectNode().put("timestamp", timestamp);
            node.set("key", Blob.jsonOf(key));
            node.set("value", Blob.jsonOf(value));
            if (!headers.isEmpty()) {
                ArrayNode pairs = node.putArray("headers");
                for (Entry entry : headers) {
                    pairs.addArray().add(entry.key).add(Blob.jsonOf(entry.value));
                }
            }
            return node;
        }
    }

    static Row row(long timestamp, Blob key, Blob value, Entry... headers) {
        return new Row(timestamp, key, value, List.of(headers));
    }

    static Row row(Blob key, Blob value, Entry... headers) {
        return row(NOON, key, value, headers);
    }

    static Rows of(Row... rows) {
        return of(List.of(rows));
    }

    static Rows of(List<Row> rows) {
        ArrayNode json = JSON.arrayNode();
        rows.forEach(row -> json.add(row.json()));
        return new Rows(rows, json);
    }

    /** One row per timestamp; value is the row's number. */
    static Rows at(long... timestamps) {
        List<Row> rows = new ArrayList<>();
        for (long timestamp : timestamps) {
            rows.add(row(timestamp, null, Blob.text(Integer.toString(rows.size()))));
        }
        return of(rows);
    }

    /** One row per length; keys are null, values repeat a letter. */
    static Rows ofLengths(int first, int last) {
        List<Row> rows = new ArrayList<>();
        for (int length = first; length <= last; length++) {
            rows.add(row(null, Blob.repeat('v', length)));
        }
        return of(rows);
    }

    /** Many rows; "%d" in key and value stands for the row's number. */
    static Rows template(int count, long step, String key, String value) {
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Blob keyBlob = key == null ? null : Blob.text(key.replace("%d", "" + i));
            rows.add(row(NOON + i * step, keyBlob, Blob.text(value.replace("%d", "" + i))));
        }
        ObjectNode json = JSON.objectNode().put("count", count).put("first_timestamp", NOON);
        json.put("timestamp_step", step).put("key", key).put("value", value);
        return new Rows(rows, json);
    }
}

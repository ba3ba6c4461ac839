import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.kafka.common.compress.Compression;

/** Record batches without a codec: every byte is to be equal. */
final class BatchCases {
    private static final Batches.Producer SOME = Batches.Producer.of(4711, 3, 0);
    private static final Blob KEY = Blob.text("key");
    private static final Blob VALUE = Blob.text("value");
    private static final Blob EMPTY = Blob.text("");

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        BatchCases all = new BatchCases();
        all.addNulls();
        all.addHeaders();
        all.addTimestamps();
        all.addLengthBorders();
        all.addProducers();
        all.addMany();
        return all.cases;
    }

    private void add(String name, Rows... batches) {
        add(name, SOME, batches);
    }

    private void add(String name, Batches.Producer producer, Rows... batches) {
        cases.add(Batches.batchCase(name, Compression.NONE, null, producer, batches));
    }

    private static Rows.Entry entry(String key, Blob value) {
        return new Rows.Entry(key, value);
    }

    private void addNulls() {
        add("one record", Rows.of(Rows.row(KEY, VALUE)));
        add("null key", Rows.of(Rows.row(null, VALUE)));
        add("empty key", Rows.of(Rows.row(EMPTY, VALUE)));
        add("tombstone", Rows.of(Rows.row(KEY, null)));
        add("empty value", Rows.of(Rows.row(KEY, EMPTY)));
        add("nothing but nulls", Rows.of(Rows.row(null, null)));
        add("nulls, empty and filled in turn", Rows.of(
            Rows.row(null, null), Rows.row(EMPTY, VALUE), Rows.row(KEY, EMPTY),
            Rows.row(null, VALUE), Rows.row(EMPTY, EMPTY), Rows.row(KEY, null),
            Rows.row(EMPTY, null), Rows.row(null, EMPTY), Rows.row(KEY, VALUE)));
        add("bytes that are no text", Rows.of(
            Rows.row(Blob.of((byte) 0x80, (byte) 0xff, (byte) 0), Blob.random(1, 200))));
    }

    private void addHeaders() {
        Rows.Entry plain = entry("a", Blob.text("1"));
        add("one header", Rows.of(Rows.row(KEY, VALUE, plain)));
        add("duplicate header keys", Rows.of(Rows.row(KEY, VALUE, plain, plain, entry("b", EMPTY), plain)));
        add("null and empty header values", Rows.of(Rows.row(KEY, VALUE, entry("n", null), entry("e", EMPTY))));
        add("empty header key", Rows.of(Rows.row(KEY, VALUE, entry("", VALUE))));
        add("header keys that are not ASCII", Rows.of(Rows.row(
            null, VALUE, entry("größe", VALUE), entry("日本", Blob.text("✓")), entry("😀", null))));
        add("headers on some rows", Rows.of(
            Rows.row(KEY, VALUE), Rows.row(KEY, VALUE, plain), Rows.row(KEY, null),
            Rows.row(null, VALUE, entry("x", null), plain), Rows.row(null, null, plain)));
        for (int length : new int[] {63, 64, 8191, 8192}) {
            add("header of " + length + " bytes",
                Rows.of(Rows.row(KEY, VALUE, entry("k".repeat(length), Blob.repeat('h', length)))));
        }
        for (int count : new int[] {63, 64, 100}) {
            Rows.Entry[] many = IntStream.range(0, count)
                .mapToObj(i -> entry("h" + i, Blob.text("" + i))).toArray(Rows.Entry[]::new);
            add(count + " headers", Rows.of(Rows.row(KEY, VALUE, many)));
        }
    }

    private void addTimestamps() {
        long noon = Rows.NOON;
        add("equal timestamps", Rows.at(noon, noon, noon));
        add("rising timestamps", Rows.at(noon, noon + 1, noon + 1000, noon + 86_400_000));
        add("falling timestamps", Rows.at(noon, noon - 1, noon - 1000, noon - 86_400_000));
        add("timestamps up and down", Rows.at(noon, noon + 5, noon - 5, noon + 9, noon - 9));
        add("timestamp zero", Rows.at(0, 0, 1));
        add("from now back to zero", Rows.at(noon, 0, noon));
        // The largest that a Spark timestamp, int64 microseconds, can hold.
        long largest = Long.MAX_VALUE / 1000;
        add("largest timestamp", Rows.at(largest, largest - 1));
        add("from zero to the largest and back", Rows.at(0, largest, 0));
        List<Long> borders = new ArrayList<>(List.of(noon));
        for (int bits = 6; bits < 41; bits += 7) {
            long border = 1L << bits;
            borders.addAll(List.of(noon + border - 1, noon + border, noon - border, noon - border - 1));
        }
        add("timestamp deltas at varint borders",
            Rows.at(borders.stream().mapToLong(Long::longValue).toArray()));
    }

    private void addLengthBorders() {
        add("record and value lengths 0 to 70", Rows.ofLengths(0, 70));
        add("record and value lengths around 8192", Rows.ofLengths(8178, 8194));
        add("record and value lengths around 1 MiB", Rows.ofLengths(1_048_568, 1_048_577));
        List<Rows.Row> keys = new ArrayList<>();
        for (int length : new int[] {1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193}) {
            keys.add(Rows.row(Blob.repeat('k', length), null));
            keys.add(Rows.row(Blob.repeat('k', length), Blob.repeat('v', length)));
        }
        add("key lengths at varint borders", Rows.of(keys));
        for (int length : new int[] {63, 64, 8191, 8192}) {
            add("one value of " + length + " bytes", Rows.of(Rows.row(null, Blob.repeat('v', length))));
        }
    }

    private void addProducers() {
        int max = Integer.MAX_VALUE;
        Rows three = Rows.template(3, 1, "k%d", "v%d");
        add("without idempotence", Batches.Producer.NONE, three);
        add("first producer id there is", Batches.Producer.of(0, 0, 0), three);
        add("largest producer id and epoch", Batches.Producer.of(Long.MAX_VALUE, Short.MAX_VALUE, 0), three);
        add("sequences go on", Batches.Producer.of(1, 0, 0), three, three, three);
        add("last sequence number", Batches.Producer.of(1, 0, max), Rows.of(Rows.row(KEY, VALUE)), three);
        add("sequence wraps within a batch", Batches.Producer.of(1, 0, max - 1), three, three);
        add("sequence wraps between batches", Batches.Producer.of(1, 0, max - 2), three, three);
        add("sequence wraps between single records", Batches.Producer.of(1, 7, max - 2),
            Rows.at(1000), Rows.at(900), Rows.at(1100), Rows.at(0), Rows.at(5));
    }

    private void addMany() {
        add("63 records", Rows.template(63, 1, "k%d", "v%d"));
        add("64 records", Rows.template(64, 1, "k%d", "v%d"));
        add("65 records", Rows.template(65, -1, null, "v%d"));
        add("1000 records", Rows.template(1000, 7, "key-%d", "value number %d"));
        add("8193 records", Rows.template(8193, 1, null, "%d"));
        add("many without idempotence", Batches.Producer.NONE, Rows.template(1000, 0, "key-%d", "%d"));
    }
}

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.kafka.common.compress.Compression;

/** Compressed batches: header and uncompressed records are to be equal, and Java's bytes readable. */
final class CodecCases {
    private static final int FASTEST_ZSTD = -131072;
    private static final Batches.Producer SOME = Batches.Producer.of(4711, 3, 100);

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        CodecCases all = new CodecCases();
        for (int level : new int[] {-1, 1, 2, 3, 4, 6, 9}) {
            all.add(Compression.gzip().level(level).build(), level);
        }
        all.add(Compression.snappy().build(), null);
        for (int level : new int[] {1, 2, 3, 9, 10, 12, 17}) {
            all.add(Compression.lz4().level(level).build(), level);
        }
        for (int level : new int[] {FASTEST_ZSTD, -5, 1, 3, 10, 19, 22}) {
            all.add(Compression.zstd().level(level).build(), level);
        }
        return all.cases;
    }

    private void add(Compression compression, Integer level) {
        String codec = compression.type().name + (level == null ? "" : " level " + level);
        add(codec + ": one record", compression, level, Rows.of(Rows.row(Blob.text("k"), Blob.text("v"))));
        add(codec + ": one null record", compression, level, Rows.of(Rows.row(null, null)));
        add(codec + ": 200 records", compression, level, Rows.template(200, 3, "key-%d", "value %d"));
        // More than a block of LZ4 (64 KiB) and several of snappy (32 KiB). The fastest zstd hardly
        // compresses: its bytes would be half of all files.
        if (level == null || level > FASTEST_ZSTD) {
            add(codec + ": several blocks", compression, level, Rows.of(
                Rows.row(null, Blob.repeat('a', 70_000)), Rows.row(null, Blob.repeat('b', 70_000))));
        }
        add(codec + ": not compressible", compression, level, Rows.of(Rows.row(null, Blob.random(7, 500))));
    }

    private void add(String name, Compression compression, Integer level, Rows rows) {
        cases.add(Batches.batchCase(name, compression, level, SOME, rows));
    }
}

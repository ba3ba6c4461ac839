import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.kafka.common.compress.Compression;

/** Record batches of a transactional producer, without a codec: every byte is to be equal. */
final class TransactionalCases {
    private static final Blob KEY = Blob.text("key");
    private static final Blob VALUE = Blob.text("value");

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        TransactionalCases all = new TransactionalCases();
        Batches.Producer some = Batches.Producer.transactional(4711, 3, 0);
        all.add("one record", some, Rows.of(Rows.row(KEY, VALUE)));
        all.add("nulls and empty", some, Rows.of(
            Rows.row(null, null), Rows.row(KEY, null), Rows.row(null, VALUE), Rows.row(Blob.text(""), Blob.text(""))));
        all.add("headers", some, Rows.of(Rows.row(KEY, VALUE,
            new Rows.Entry("größe", Blob.text("7")), new Rows.Entry("", null), new Rows.Entry("a", Blob.text("")),
            new Rows.Entry("a", Blob.random(5, 100))), Rows.row(KEY, VALUE)));
        all.add("lengths", some, Rows.of(
            Rows.row(Blob.repeat('k', 63), Blob.repeat('v', 64)), Rows.row(Blob.repeat('k', 64), Blob.repeat('v', 8191)),
            Rows.row(Blob.repeat('k', 8192), Blob.repeat('v', 1 << 20))));
        all.add("200 records", some, Rows.template(200, 0, "key-%d", "value %d"));
        all.add("largest numbers", Batches.Producer.transactional(Long.MAX_VALUE, Short.MAX_VALUE, Integer.MAX_VALUE),
            Rows.of(Rows.row(KEY, VALUE), Rows.row(KEY, VALUE)));
        all.add("batches in sequence", Batches.Producer.transactional(0, 0, 0),
            Rows.of(Rows.row(KEY, VALUE), Rows.row(KEY, VALUE)), Rows.of(Rows.row(KEY, VALUE)), Rows.of(Rows.row(KEY, null)));
        return all.cases;
    }

    private void add(String name, Batches.Producer producer, Rows... batches) {
        cases.add(Batches.batchCase(name, Compression.NONE, null, producer, batches));
    }
}

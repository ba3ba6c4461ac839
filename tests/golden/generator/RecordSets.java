import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.function.Predicate;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/** Logs as a fetch returns them: offsets given, transactions ended, some of it compacted. */
final class RecordSets {
    private static final int LEADER_EPOCH = 6;
    private static final int COORDINATOR_EPOCH = 9;
    private static final Batches.Producer FIRST = Batches.Producer.transactional(4711, 3, 0);
    private static final Batches.Producer SECOND = Batches.Producer.transactional(Long.MAX_VALUE, 0, 100);
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private final ArrayNode cases = JSON.arrayNode();

    static ArrayNode all() {
        RecordSets all = new RecordSets();
        all.add("nothing", MemoryRecords.EMPTY);
        all.addTransactions();
        all.addTimestamps();
        all.addCompacted();
        all.addOtherControlRecords();
        return all.cases;
    }

    private static Rows decisions() {
        Blob random = Blob.random(3, 40);
        return Rows.of(
            Rows.row(Blob.text("größe"), Blob.text("decided"), new Rows.Entry("batch", random), new Rows.Entry("", null)),
            Rows.row(Rows.NOON + 7, Blob.text("b"), null),
            Rows.row(Rows.NOON - 5, null, Blob.text("")),
            Rows.row(Rows.NOON + 1, Blob.text("b"), random, new Rows.Entry("größe", Blob.text(""))));
    }

    private static MemoryRecords appended(long baseOffset, Batches.Producer producer, Rows rows) {
        MemoryRecords records = Batches.build(Compression.NONE, producer, rows);
        for (MutableRecordBatch batch : records.batches()) {
            batch.setLastOffset(baseOffset + rows.list().size() - 1);
            batch.setPartitionLeaderEpoch(LEADER_EPOCH);
        }
        return records;
    }

    private static MemoryRecords marker(long offset, Batches.Producer producer, ControlRecordType type) {
        return MemoryRecords.withEndTransactionMarker(offset, Rows.NOON + 99, LEADER_EPOCH, producer.id(),
            producer.epoch(), new EndTransactionMarker(type, COORDINATOR_EPOCH));
    }

    private static MemoryRecords log(MemoryRecords... parts) {
        ByteBuffer all = ByteBuffer.allocate(1 << 16);
        for (MemoryRecords part : parts) {
            all.put(part.buffer().duplicate());
        }
        return MemoryRecords.readableRecords(all.flip());
    }

    private void addTransactions() {
        add("committed", log(appended(1L << 33, FIRST, decisions()),
            marker((1L << 33) + 4, FIRST, ControlRecordType.COMMIT)));
        add("aborted", log(appended(0, FIRST, decisions()), marker(4, FIRST, ControlRecordType.ABORT)));
        add("two at once", log(appended(10, FIRST, decisions()), appended(14, SECOND, decisions()),
            marker(18, SECOND, ControlRecordType.ABORT), appended(19, Batches.Producer.of(5, 0, 0), decisions()),
            appended(23, Batches.Producer.NONE, decisions()), marker(27, FIRST, ControlRecordType.COMMIT)));
    }

    private void addTimestamps() {
        MemoryRecords records = appended(3, FIRST, decisions());
        for (MutableRecordBatch batch : records.batches()) {
            batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, Rows.NOON + 1234);
        }
        add("log append time", records);
    }

    private void addCompacted() {
        MemoryRecords log = log(appended(7, FIRST, decisions()), marker(11, FIRST, ControlRecordType.COMMIT));
        add("without the first and the last", compacted(log, record -> record.offset() == 8 || record.offset() == 9));
        add("a record between", compacted(log, record -> record.offset() == 9));
        add("emptied batches", compacted(log, record -> false));
        add("a tombstone's horizon", compacted(log, record -> true));
    }

    /** The log after a cleaner has gone over it; tombstones and markers get their horizon. */
    private static MemoryRecords compacted(MemoryRecords log, Predicate<Record> retained) {
        RecordFilter filter = new RecordFilter(Rows.NOON, 86_400_000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, batch.isControlBatch());
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return retained.test(record);
            }
        };
        ByteBuffer cleaned = ByteBuffer.allocate(1 << 16);
        log.filterTo(filter, cleaned, BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
        return MemoryRecords.readableRecords(cleaned.flip());
    }

    /** As in the log of the controllers: to be read, and to be taken for no end of a transaction. */
    private void addOtherControlRecords() {
        add("a leader's message", MemoryRecords.withLeaderChangeMessage(
            2, Rows.NOON, LEADER_EPOCH, ByteBuffer.allocate(1024), new LeaderChangeMessage().setLeaderId(1)));
    }

    private void add(String name, MemoryRecords records) {
        ObjectNode node = cases.addObject().put("name", name).put("records", Frames.hex(Batches.toArray(records)));
        ArrayNode batches = node.putArray("batches");
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            ObjectNode entry = batches.addObject();
            entry.put("base_offset", batch.baseOffset()).put("last_offset", batch.lastOffset());
            entry.put("producer_id", batch.producerId()).put("producer_epoch", batch.producerEpoch());
            entry.put("base_sequence", batch.baseSequence()).put("leader_epoch", batch.partitionLeaderEpoch());
            entry.put("transactional", batch.isTransactional()).put("control", batch.isControlBatch());
            ArrayNode list = entry.putArray("records");
            for (Record record : batch) {
                putRecord(list.addObject(), record);
                if (batch.isControlBatch()) {
                    putControl(entry, record);
                }
            }
        }
    }

    private static void putControl(ObjectNode batch, Record record) {
        ControlRecordType type = ControlRecordType.parse(record.key());
        batch.put("type", type.toString());
        if (List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT).contains(type)) {
            batch.put("coordinator_epoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
        }
    }

    private static void putRecord(ObjectNode node, Record record) {
        node.put("offset", record.offset()).put("timestamp", record.timestamp());
        node.put("key", hex(record.key())).put("value", hex(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            String value = header.value() == null ? null : Frames.hex(header.value());
            headers.addArray().add(header.key()).add(value);
        }
    }

    private static String hex(ByteBuffer buffer) {
        return buffer == null ? null : Frames.hex(Utils.toArray(buffer));
    }
}

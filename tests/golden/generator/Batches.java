import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Record batches, built step by step as RecordAccumulator and ProducerBatch build them. */
final class Batches {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Batches() { }

    /** Who writes, and the sequence of the first record; NONE without idempotence. */
    record Producer(long id, short epoch, int sequence, boolean isTransactional) {
        static final Producer NONE = new Producer(
            RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false);

        static Producer of(long id, int epoch, int sequence) {
            return new Producer(id, (short) epoch, sequence, false);
        }

        static Producer transactional(long id, int epoch, int sequence) {
            return new Producer(id, (short) epoch, sequence, true);
        }

        boolean isIdempotent() {
            return id != RecordBatch.NO_PRODUCER_ID;
        }

        Producer after(int records) {
            if (!isIdempotent()) {
                return this;
            }
            int next = DefaultRecordBatch.incrementSequence(sequence, records);
            return new Producer(id, epoch, next, isTransactional);
        }

        void putInto(ObjectNode node) {
            if (!isIdempotent()) {
                node.putNull("producer");
                return;
            }
            ObjectNode json = node.putObject("producer");
            json.put("id", id).put("epoch", epoch).put("first_sequence", sequence);
            if (isTransactional) {
                json.put("transactional", true);
            }
        }
    }

    static MemoryRecords build(Compression compression, Producer producer, Rows rows) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), RecordBatch.CURRENT_MAGIC_VALUE, compression,
            TimestampType.CREATE_TIME, 0L);
        for (Rows.Row row : rows.list()) {
            builder.append(row.timestamp(), Blob.bytesOf(row.key()), Blob.bytesOf(row.value()),
                row.javaHeaders());
        }
        if (producer.isIdempotent()) {
            builder.setProducerState(producer.id(), producer.epoch(), producer.sequence(),
                producer.isTransactional());
        }
        builder.close();
        return builder.build();
    }

    /** A case: one or more batches that follow each other in sequence. */
    static ObjectNode batchCase(
            String name, Compression compression, Integer level, Producer producer, Rows... batches) {
        ObjectNode node = JSON.objectNode().put("name", name);
        node.put("codec", compression.type().name).put("level", level);
        producer.putInto(node);
        ArrayNode list = node.putArray("batches");
        Producer next = producer;
        for (Rows rows : batches) {
            byte[] bytes = toArray(build(compression, next, rows));
            int headerEnd = DefaultRecordBatch.RECORD_BATCH_OVERHEAD;
            ObjectNode batch = list.addObject();
            batch.set("rows", rows.json());
            batch.put("header", Frames.hex(Arrays.copyOf(bytes, headerEnd)));
            boolean isCompressed = level != null || !compression.type().name.equals("none");
            byte[] records = Arrays.copyOfRange(bytes, headerEnd, bytes.length);
            Frames.put(batch, "records", records, isCompressed);
            next = next.after(rows.list().size());
        }
        return node;
    }

    static byte[] toArray(MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}

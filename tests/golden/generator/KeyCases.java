import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** Which partition the Java producer gives to a key. */
final class KeyCases {
    private static final int LONGEST = 40;
    private static final int[] COUNTS =
        {1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 30, 50, 100, 997, 1000, 65_536, Integer.MAX_VALUE};

    private KeyCases() { }

    static ArrayNode all() {
        ArrayNode cases = JsonNodeFactory.instance.arrayNode();
        for (Blob key : keys()) {
            ObjectNode node = cases.addObject();
            node.set("key", key.json());
            node.put("murmur2", Utils.murmur2(key.bytes()));
            ObjectNode partitions = node.putObject("partitions");
            for (int count : COUNTS) {
                partitions.put("" + count, BuiltInPartitioner.partitionForKey(key.bytes(), count));
            }
        }
        return cases;
    }

    private static List<Blob> keys() {
        List<Blob> keys = new ArrayList<>();
        for (int length = 0; length <= LONGEST; length++) {
            keys.add(Blob.repeat('k', length));
            byte[] high = new byte[length];
            for (int i = 0; i < length; i++) {
                high[i] = (byte) (0x80 + 31 * i + length);
            }
            keys.add(Blob.of(high));
            keys.add(Blob.of(new byte[length]));
            keys.add(Blob.random(length, length));
        }
        // Every byte where the tail is sign-extended if one is careless.
        for (int value = 0x7e; value <= 0xff; value++) {
            keys.add(Blob.of((byte) value));
            keys.add(Blob.of((byte) 1, (byte) value, (byte) (value ^ 0x80)));
        }
        for (String text : List.of("größe", "日本語", "😀", "user-1", "JFK", "LGA", "EWR")) {
            keys.add(Blob.text(text));
        }
        keys.add(Blob.random(99, 1000));
        keys.add(Blob.repeat('x', 100_001));
        return keys;
    }
}

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.producer.internals.DrawnPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/** To which partitions records without key go, and how often, by racks, queues and slow brokers. */
final class RackCases {
    /** A multiple of most sums of weights, so that the shares are exact. */
    private static final int DRAWS = 5040;
    private static final String TOPIC = "t";
    private static final Node[] NONE = new Node[0];

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    private RackCases() { }

    /** Node i leads partition i, unless it has no leader. */
    private record Broker(String rack, boolean leads, int queued, boolean isSlow) { }

    static ArrayNode all() {
        RackCases all = new RackCases();
        for (String rack : List.of("a", "c", "")) {
            for (String racks : List.of("abc", "aab", "a--", "---", "abbbbb")) {
                all.add(racks, rack, "", "", "");
                all.add(racks, rack, "314159", "", "");
                all.add(racks, rack, "222222", "", "");
                all.add(racks, rack, "000009", "", "");
                all.add(racks, rack, "", "01", "");
                all.add(racks, rack, "512340", "", "1");
                all.add(racks, rack, "512340", "", "012345");
            }
        }
        return all.cases;
    }

    /** racks: of node i, '-' for none; queued: batches of partition i; without: leaders; slow: nodes. */
    private void add(String racks, String rack, String queued, String without, String slow) {
        List<Broker> brokers = new ArrayList<>();
        for (int i = 0; i < racks.length(); i++) {
            brokers.add(new Broker(
                racks.charAt(i) == '-' ? null : racks.substring(i, i + 1), without.indexOf('0' + i) < 0,
                queued.isEmpty() ? 0 : queued.charAt(i) - '0', slow.indexOf('0' + i) >= 0));
        }
        for (boolean rackAware : new boolean[] {true, false}) {
            ObjectNode node = cases.addObject();
            node.put("name", String.join(" ", racks, rack, queued, without, slow, rackAware ? "aware" : "off"));
            node.put("racks", racks).put("rack", rack).put("queued", queued);
            node.put("without_leader", without).put("slow", slow).put("rack_aware", rackAware);
            ObjectNode shares = node.putObject("shares");
            int[] counts = counts(brokers, rackAware, rack);
            for (int i = 0; i < counts.length; i++) {
                if (counts[i] > 0) {
                    shares.put("" + i, Math.round(1000.0 * counts[i] / DRAWS) / 1000.0);
                }
            }
        }
    }

    private static int[] counts(List<Broker> brokers, boolean rackAware, String rack) {
        List<PartitionInfo> partitions = new ArrayList<>();
        List<Node> nodes = new ArrayList<>();
        for (int i = 0; i < brokers.size(); i++) {
            Node node = new Node(i, "h", 1, brokers.get(i).rack());
            nodes.add(node);
            partitions.add(new PartitionInfo(TOPIC, i, brokers.get(i).leads() ? node : null, NONE, NONE));
        }
        Cluster cluster = new Cluster("c", nodes, partitions, Set.of(), Set.of());
        int[] counts = new int[brokers.size()];
        for (int drawn = 0; drawn < DRAWS; drawn++) {
            DrawnPartitioner partitioner = new DrawnPartitioner(TOPIC, rackAware, rack, drawn);
            update(partitioner, brokers);
            counts[partitioner.choice(cluster)]++;
        }
        return counts;
    }

    /** As RecordAccumulator.partitionReady does. */
    private static void update(DrawnPartitioner partitioner, List<Broker> brokers) {
        int[] queueSizes = new int[brokers.size()];
        int[] partitionIds = new int[brokers.size()];
        String[] racks = new String[brokers.size()];
        int length = 0;
        for (int i = 0; i < brokers.size(); i++) {
            Broker broker = brokers.get(i);
            if (broker.leads() && !broker.isSlow()) {
                queueSizes[length] = broker.queued();
                partitionIds[length] = i;
                racks[length++] = broker.rack();
            }
        }
        partitioner.updatePartitionLoadStats(queueSizes, partitionIds, racks, length);
    }
}

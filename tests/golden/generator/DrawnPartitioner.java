package org.apache.kafka.clients.producer.internals;

import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.internals.LogContext;

/** The producer's own partitioner for records without key, with a given random number. */
public final class DrawnPartitioner extends BuiltInPartitioner {
    private final int drawn;

    public DrawnPartitioner(String topic, boolean rackAware, String rack, int drawn) {
        super(new LogContext(), topic, 1, rackAware, rack);
        this.drawn = drawn;
    }

    @Override
    int randomPartition() {
        return drawn;
    }

    public int choice(Cluster cluster) {
        return peekCurrentPartitionInfo(cluster).partition();
    }
}

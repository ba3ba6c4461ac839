import java.io.FileOutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN until the end of the process: java Yarn.java FOLDER_FOR_ITS_CONF FOLDER_FOR_ITS_DATA */
public class Yarn {
  public static void main(String[] arguments) throws Exception {
    System.setProperty("test.build.data", arguments[1]);
    YarnConfiguration conf = new YarnConfiguration();
    conf.set("yarn.scheduler.capacity.root.queues", "default");
    conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
    conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
    conf.set("yarn.scheduler.minimum-allocation-mb", "128");
    conf.set("yarn.nodemanager.resource.memory-mb", "8192");
    // Python's workers map more than they use; the disk of a machine for tests may be full.
    conf.set("yarn.nodemanager.vmem-check-enabled", "false");
    conf.set("yarn.nodemanager.pmem-check-enabled", "false");
    conf.set(
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
    cluster.init(conf);
    cluster.start();
    try (FileOutputStream out = new FileOutputStream(arguments[0] + "/yarn-site.xml")) {
      cluster.getConfig().writeXml(out);
    }
    System.out.println("YARN is ready");
    Thread.sleep(Long.MAX_VALUE);
  }
}

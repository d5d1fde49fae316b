import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/** A name node, or two with "ha", and two data nodes on loopback; obeys one command a line, and ends with its input. */
public class HdfsCluster {
    public static void main(String[] arguments) throws Exception {
        HdfsConfiguration settings = new HdfsConfiguration();
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            settings.set(parts[0], parts[1]);
        }
        boolean isTwofold = settings.getBoolean("ha", false);
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(2);
        MiniDFSCluster cluster =
            (isTwofold ? builder.nnTopology(MiniDFSNNTopology.simpleHATopology()) : builder).build();
        if (isTwofold) {
            cluster.transitionToActive(0);
        }
        System.out.println("port " + cluster.getNameNodePort(0) + (isTwofold ? " " + cluster.getNameNodePort(1) : ""));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        DataNodeProperties stopped = null;
        for (String line; (line = commands.readLine()) != null;) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "stop-data-node" -> stopped = cluster.stopDataNode(0);
                case "start-data-node" -> cluster.restartDataNode(stopped, true);
                case "fail-over" -> {
                    cluster.shutdownNameNode(0);
                    cluster.transitionToActive(1);
                }
                case "stop-name-node" -> cluster.shutdownNameNode(0);
                case "start-name-node" -> cluster.restartNameNode(0, true);
                case "safe-mode" -> cluster.getFileSystem().setSafeMode(SafeModeAction.valueOf(words[1]));
                case "quota" -> cluster.getFileSystem()
                    .setQuota(new Path(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done");
        }
        System.exit(0);
    }
}

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;

/** Copies SOURCE to TARGET with Hadoop's FileUtil. Prints how many entries the target has, and the nanoseconds. */
public class HadoopCopy {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    FileSystem fs = FileSystem.getLocal(conf);
    Path target = new Path(arguments[1]);
    long start = System.nanoTime();
    if (!FileUtil.copy(fs, new Path(arguments[0]), fs, target, false, conf)) {
      throw new IllegalStateException("not everything was copied");
    }
    long end = System.nanoTime();
    System.out.println(fs.listStatus(target).length + " " + (end - start));
  }
}

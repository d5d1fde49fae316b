import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * What an eviction through Hadoop's FileSystem does: glob PATTERN, or evict LIST BASE. The list has one path a line; each
 * is deleted with all it holds, then each empty parent up to the base. Prints how many, and in how many nanoseconds.
 */
public class HadoopEviction {
  public static void main(String[] arguments) throws Exception {
    FileSystem fs = FileSystem.getLocal(new Configuration());
    long start;
    int count;
    if (arguments[0].equals("glob")) {
      start = System.nanoTime();
      count = fs.globStatus(new Path(arguments[1])).length;
    } else {
      var paths = Files.readAllLines(Paths.get(arguments[1]));
      Path base = new Path(arguments[2]);
      start = System.nanoTime();
      count = 0;
      for (String text : paths) {
        Path path = new Path(text);
        if (fs.delete(path, true)) {
          count++;
        }
        for (Path parent = path.getParent();
            !parent.equals(base) && fs.listStatus(parent).length == 0;
            parent = parent.getParent()) {
          fs.delete(parent, false);
        }
      }
    }
    System.out.println(count + " " + (System.nanoTime() - start));
  }
}

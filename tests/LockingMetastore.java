import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** A metastore with the tables of its locks, which come with Hive's scripts elsewhere. */
public class LockingMetastore {
    public static void main(String[] arguments) throws Throwable {
        TxnDbUtil.prepDb(new HiveConf());
        HiveMetaStore.main(arguments);
    }
}

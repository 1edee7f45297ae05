//! A full disk, and a read-only disk.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sallyport_store::{Store, StoreError};

use crate::fixtures::{account, make_socket};

/// A small file system, unmounted on drop.
struct SmallDisk {
    path: PathBuf,
    _parent: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where mounting is not allowed; prints the reason.
    fn mount() -> Option<Self> {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path, _parent: parent }),
            Ok(output) => {
                println!(
                    "skipped: a small disk cannot be mounted here: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
                None
            }
            Err(error) => {
                println!("skipped: a small disk cannot be mounted here: {error}");
                None
            }
        }
    }

    fn remount(&self, how: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.path).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Fills the disk to its last byte.
fn fill(dir: &Path) -> PathBuf {
    use std::io::Write;
    let path = dir.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [65_536, 4_096, 512, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    path
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_room_heals_it() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = Store::open(&disk.path).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    let kept = make_socket(&store, 1, 1, &[1]).await.unwrap();

    let filler = fill(&disk.path);
    let mut made = 1;
    let mut full = None;
    // The log may still have space that it allocated before.
    for n in 2..2_000 {
        match make_socket(&store, 1, n % 900, &[u64::from(n)]).await {
            Ok(_) => made += 1,
            Err(error) => {
                full = Some(error);
                break;
            }
        }
    }
    let error = full.expect("the disk is full");
    assert!(matches!(error, StoreError::DiskFull), "{error:?}");
    assert!(error.to_string().contains("free some space"), "{error}");
    for n in 1_000..1_005 {
        let error = make_socket(&store, 1, n, &[u64::from(n)]).await.unwrap_err();
        assert!(matches!(error, StoreError::DiskFull), "{error:?}");
    }
    assert_eq!(store.routes().await.unwrap().len(), made, "reading goes on, and what was made is there");

    std::fs::remove_file(filler).unwrap();
    make_socket(&store, 1, 2_000, &[2_000_000]).await.expect("there is room again");
    store.close().await;
    let again = Store::open(&disk.path).await.unwrap();
    assert_eq!(again.routes().await.unwrap().len(), made + 1);
    assert!(again.socket(kept.account, kept.id).await.unwrap().is_some());
    again.close().await;
}

#[tokio::test]
async fn a_full_disk_at_the_first_start_is_a_clear_error() {
    let Some(disk) = SmallDisk::mount() else { return };
    let filler = fill(&disk.path);
    let error = Store::open(&disk.path).await.unwrap_err();
    assert!(matches!(error, StoreError::DiskFull), "{error:?}");
    std::fs::remove_file(filler).unwrap();
    Store::open(&disk.path).await.unwrap().close().await;
}

#[tokio::test]
async fn a_read_only_disk_is_a_clear_error() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = Store::open(&disk.path).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    store.close().await;
    disk.remount("ro");
    let error = Store::open(&disk.path).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    disk.remount("rw");
    let store = Store::open(&disk.path).await.unwrap();
    assert_eq!(store.count_accounts().await.unwrap(), 1);
    store.close().await;
}

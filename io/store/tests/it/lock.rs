//! One process per data directory.

use std::{fs, os::unix::fs::PermissionsExt};

use sallyport_store::{DataDirLock, LockError};

#[test]
fn the_second_process_learns_the_holder_of_the_lock() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let first = DataDirLock::take(&dir).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(dir.join("lock")).unwrap().permissions().mode() & 0o777, 0o600);
    let error = DataDirLock::take(&dir).unwrap_err();
    assert!(matches!(error, LockError::InUse { .. }));
    let expected = format!("{} is in use by process {}", dir.display(), std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    drop(first);
    DataDirLock::take(&dir).expect("free again");
}

#[test]
fn a_lock_file_left_by_a_killed_process_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "4194304 with more text than a process id has\n").unwrap();
    let lock = DataDirLock::take(dir.path()).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("lock")).unwrap(), format!("{}\n", std::process::id()));
    assert_eq!(lock.dir(), dir.path());
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DataDirLock::take(&file.join("data")).unwrap_err();
    assert!(error.to_string().contains("file/data"), "{error}");
}

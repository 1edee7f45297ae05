//! Opening and reopening a data directory, and refusals.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use sallyport_store::{DATABASE_FILE, Store, StoreError};
use sqlx::{Connection, SqliteConnection};

use crate::fixtures::{account, make_socket, make_tunnel, store_with_account};

/// Runs a statement on the file of a database, past the store.
pub(crate) async fn sql(path: &Path, statement: &'static str) {
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Opening is refused, and the files are unchanged.
async fn refused(dir: &Path) -> StoreError {
    let path = dir.join(DATABASE_FILE);
    let log = dir.join(format!("{DATABASE_FILE}-wal"));
    let before = (fs::read(&path).unwrap(), fs::read(&log).unwrap_or_default());
    let error = Store::open(dir).await.expect_err("refused");
    assert!((fs::read(&path).unwrap(), fs::read(&log).unwrap_or_default()) == before, "a file was changed");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash() {
    let (dir, store) = store_with_account().await;
    let socket = make_socket(&store, 1, 1, &[5]).await.unwrap();
    make_tunnel(&store, 1, socket.id, 1).await.unwrap();
    // A crash: the files as they are now, the write-ahead log included, while the store is still open.
    let crashed = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        // The shared memory file is not on disk after a power cut.
        if !file.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(file.path(), crashed.path().join(file.file_name())).unwrap();
        }
    }
    let again = Store::open(crashed.path()).await.unwrap();
    assert_eq!(again.account(socket.account).await.unwrap().unwrap(), account(1).account);
    assert_eq!(again.socket(socket.account, socket.id).await.unwrap().unwrap(), socket);
    let routes = again.routes().await.unwrap();
    assert_eq!((routes.len(), routes[0].tunnels.len()), (1, 1));
}

#[tokio::test]
async fn files_are_for_their_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("deep/data");
    let store = Store::open(&dir).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let mut count = 0;
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        count += 1;
    }
    assert!(count >= 2, "the log is there too");
    store.close().await;
    fs::set_permissions(store.path(), fs::Permissions::from_mode(0o644)).unwrap();
    Store::open(&dir).await.unwrap();
    assert_eq!(fs::metadata(store.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_kept() {
    for content in [&b"x"[..], b"not a database at all, but long enough to be one", &[0; 4096]] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DATABASE_FILE), content).unwrap();
        let error = refused(dir.path()).await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(DATABASE_FILE)).unwrap();
    let error = Store::open(dir.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_kept() {
    let (dir, store) = store_with_account().await;
    for n in 0..50 {
        make_socket(&store, 1, n, &[u64::from(n) * 7_919]).await.unwrap();
    }
    store.close().await;
    let path = dir.path().join(DATABASE_FILE);
    let sound = fs::read(&path).unwrap();

    let mut garbled = sound.clone();
    garbled[4_096..].fill(0xa5);
    let mut cut = sound.clone();
    cut.truncate(sound.len() / 2);
    let mut header = sound.clone();
    header[16..100].fill(0xff);
    for damaged in [garbled, cut, header] {
        fs::write(&path, &damaged).unwrap();
        let error = refused(dir.path()).await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
    fs::write(&path, &sound).unwrap();
    assert_eq!(Store::open(dir.path()).await.unwrap().routes().await.unwrap().len(), 50);
}

#[tokio::test]
async fn the_log_of_a_refused_database_is_kept_too() {
    let (dir, store) = store_with_account().await;
    for n in 0..50 {
        make_socket(&store, 1, n, &[u64::from(n) * 7_919]).await.unwrap();
    }
    store.close().await;
    let store = Store::open(dir.path()).await.unwrap();
    make_socket(&store, 1, 50, &[5]).await.unwrap();
    let crashed = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let file = format!("{DATABASE_FILE}{suffix}");
        fs::copy(dir.path().join(&file), crashed.path().join(&file)).unwrap();
    }
    let path = crashed.path().join(DATABASE_FILE);
    let mut damaged = fs::read(&path).unwrap();
    damaged[4_096..].fill(0xa5);
    fs::write(&path, damaged).unwrap();
    assert!(fs::metadata(crashed.path().join(format!("{DATABASE_FILE}-wal"))).unwrap().len() > 0);
    let error = refused(crashed.path()).await;
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn a_newer_database_is_refused_and_kept() {
    let (dir, store) = store_with_account().await;
    store.close().await;
    sql(&dir.path().join(DATABASE_FILE), "PRAGMA user_version = 9999").await;
    let error = refused(dir.path()).await;
    assert!(matches!(error, StoreError::Newer { found: 9999, .. }), "{error:?}");
    assert!(error.to_string().contains("version 9999"), "{error}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_kept() {
    for statement in ["CREATE TABLE notes (text)", "PRAGMA application_id = 42"] {
        let dir = tempfile::tempdir().unwrap();
        sql(&dir.path().join(DATABASE_FILE), statement).await;
        let error = refused(dir.path()).await;
        assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_backup_is_the_store_as_it_was_while_it_is_used() {
    let (dir, store) = store_with_account().await;
    let kept = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let backup = tempfile::tempdir().unwrap();
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 2..60 {
                make_socket(&store, 1, n, &[u64::from(n)]).await.unwrap();
            }
        }
    });
    Store::back_up(dir.path(), backup.path()).await.unwrap();
    writing.await.unwrap();
    let file = backup.path().join(DATABASE_FILE);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    Store::verify(backup.path()).await.unwrap();
    assert_eq!(fs::read_dir(backup.path()).unwrap().count(), 1, "looking leaves nothing behind");
    let again = Store::back_up(dir.path(), backup.path()).await.unwrap_err();
    assert!(again.to_string().contains(&file.display().to_string()), "{again}");

    let restored = Store::open(backup.path()).await.unwrap();
    assert_eq!(restored.socket(kept.account, kept.id).await.unwrap(), Some(kept));
    make_socket(&restored, 1, 100, &[1_000]).await.unwrap();
    restored.close().await;

    fs::write(&file, "no database at all").unwrap();
    assert!(matches!(Store::verify(backup.path()).await.unwrap_err(), StoreError::Corrupt { .. }));
    let nothing = tempfile::tempdir().unwrap();
    assert!(Store::back_up(nothing.path(), backup.path()).await.is_err());
}

#[tokio::test]
async fn an_interrupted_first_start_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(DATABASE_FILE), "").unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn sockets_of_an_older_database_that_share_a_name_get_numbers_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    for owner in [1, 2] {
        store.create_account(account(owner)).await.unwrap();
    }
    for (owner, n) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5)] {
        make_socket(&store, owner, n, &[u64::from(n)]).await.unwrap();
    }
    store.close().await;
    // The rows of the time before names were unique. The third has the name that the second would get with a number.
    sql(
        &dir.path().join(DATABASE_FILE),
        "UPDATE sockets SET name_key = NULL, display_name = 'Blog';
         UPDATE sockets SET display_name = 'blog (2)' WHERE display_name = 'Blog' AND position = 3",
    )
    .await;
    let names = async |store: &Store, owner: u8| {
        let sockets = store.sockets(account(owner).account.id, 0, 10).await.unwrap();
        sockets.into_iter().map(|(_, socket)| socket.display_name.as_str().to_owned()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let store = Store::open(dir.path()).await.unwrap();
        assert_eq!(names(&store, 1).await, ["Blog", "Blog (3)", "blog (2)", "Blog (4)"]);
        assert_eq!(names(&store, 2).await, ["Blog"], "another account's");
        let found = store.socket_by_display_name(account(1).account.id, &"BLOG (3)".parse().unwrap()).await.unwrap();
        assert!(found.is_some());
        store.close().await;
    }
}

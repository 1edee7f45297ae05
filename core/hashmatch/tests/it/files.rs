//! Files of indexes.

use sallyport_hashmatch::{FileError, HASH_BYTES, Hash, read, write};

fn written(rows: &[Hash]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(rows, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_index_is_read_as_it_was_written() {
    let rows = [[1; HASH_BYTES], [2; HASH_BYTES]];
    let bytes = written(&rows);
    assert_eq!((bytes.len(), &bytes[..8]), (24 + 2 * HASH_BYTES + 32, b"SPHASHES".as_slice()));
    assert_eq!(read(bytes.as_slice()).unwrap(), rows);
    assert_eq!(read(written(&[]).as_slice()).unwrap(), [[0; HASH_BYTES]; 0]);
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = written(&[[1; HASH_BYTES]]);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(read(changed.as_slice()).is_err(), "byte {at}");
    }
    let refused = |bytes: &[u8]| read(bytes).unwrap_err();
    assert!(matches!(refused(b"GIF89a"), FileError::NoIndex));
    assert!(matches!(refused(&bytes[..100]), FileError::Short));
    assert!(matches!(refused(&[bytes.as_slice(), b"x"].concat()), FileError::Long));
    let mut flipped = bytes;
    flipped[30] ^= 1;
    assert!(matches!(refused(&flipped), FileError::Checksum));
}

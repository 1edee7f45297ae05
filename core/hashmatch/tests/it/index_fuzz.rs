//! What the fuzzer does with its bytes: they are the file of an index. It also lives in `fuzz/`.

use sallyport_hashmatch::{read, write};

/// What is read is written as the same bytes; bytes that are no index are refused in one sentence.
pub(crate) fn hash_index(data: &[u8]) {
    match read(data) {
        Ok(rows) => {
            let mut written = Vec::new();
            assert!(write(&rows, &mut written).is_ok());
            assert_eq!(written, data);
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

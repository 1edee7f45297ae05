//! What the fuzzers do with their bytes. It also lives in `fuzz/`.

use sallyport_anycast::{
    bird::{MAX_PROTOCOLS, MAX_ROUTES, Reply, ReplyError, ReplyReader, Version, protocols, routes, status},
    paths::{AsNames, Relation, Relations},
};

/// Replies of BIRD: the first byte says in which pieces they come. In any pieces they are the same.
pub(crate) fn bird_reply(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, usize::from(*size).max(1));
    assert_eq!(whole.1, pieces.1);
    // Whoever reads slowly gets the same replies up to the first mistake.
    let count = whole.0.len().min(pieces.0.len());
    assert_eq!(whole.0[..count], pieces.0[..count]);
    assert!(whole.1.is_some() || whole.0.len() == pieces.0.len());
    for reply in whole.0 {
        assert!(!reply.lines.is_empty());
        let (code, text) = reply.last();
        let _ = Version::from_greeting(&format!("{code:04} {text}"));
        let is_refused = code >= 8000;
        if let Ok(found) = protocols(reply.clone()) {
            assert!(found.len() <= MAX_PROTOCOLS && !is_refused);
            assert!(found.iter().all(|protocol| !protocol.name.is_empty()));
        }
        if let Ok(found) = routes(reply.clone()) {
            assert!(found.len() <= MAX_ROUTES);
            assert!(found.is_empty() || !is_refused);
        }
        assert!(status(reply.clone()).is_err() || code == 13);
        if reply.configure_answer().is_ok() {
            assert!(code <= 20);
        }
    }
}

/// The replies, and the mistake that ended them.
fn read(bytes: &[u8], size: usize) -> (Vec<Reply>, Option<ReplyError>) {
    let mut reader = ReplyReader::default();
    let mut replies = Vec::new();
    for piece in bytes.chunks(size) {
        let result = reader.feed(piece);
        replies.extend(std::iter::from_fn(|| reader.take()));
        match result {
            // More than a reader that waits takes at once: with small pieces it does not come to that.
            Err(ReplyError::TooMany) => return read(bytes, 1),
            Err(error) => return (replies, Some(error)),
            Ok(()) => {}
        }
    }
    (replies, None)
}

/// A table of relations or a list of names: what is read is the same from both sides.
pub(crate) fn as_relations(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(relations) = Relations::parse(text) {
        assert!(relations.len() <= text.lines().count());
        for line in text.lines() {
            let mut numbers = line.trim().split('|').filter_map(|part| part.parse::<u32>().ok());
            let (Some(one), Some(other)) = (numbers.next(), numbers.next()) else { continue };
            if let Some(relation) = relations.of(one, other) {
                assert_eq!(relations.of(other, one).map(Relation::reverse), Some(relation));
            }
        }
    }
    if let Ok(names) = AsNames::parse(text) {
        assert!(!names.label(3356).chars().any(char::is_control));
    }
}

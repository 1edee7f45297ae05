//! What the fuzzer does with its bytes: they are an answer to the question which server answers. It also lives in
//! `fuzz/`.

use sallyport_catchment::{MAX_CHAOS_BYTES, chaos_answer, chaos_question};

/// The id of the question.
pub(crate) const ID: u16 = 0x1234;

/// What is read is a text of the answer, and the answer is to the question.
pub(crate) fn chaos_reply(data: &[u8]) {
    let Ok(answer) = chaos_answer(ID, data) else { return };
    let question = chaos_question(ID);
    assert!(data.len() <= MAX_CHAOS_BYTES && data.len() > question.len());
    assert_eq!(data[..2], question[..2], "the id is that of the question");
    assert!(data[2] & 0x80 != 0 && data[3] & 0x0f == 0, "a question or a refusal was taken for an answer");
    assert!(data[12..question.len()].eq_ignore_ascii_case(&question[12..]));
    assert_eq!(answer.is_resolver, data[3] & 0x80 != 0);
    // A byte that is no text becomes a character of three bytes.
    assert!(answer.text.len() <= 3 * data.len());
    assert!(chaos_answer(ID ^ 1, data).is_err());
}

//! One request head, read line by line as it comes.

use std::ops::Range;

use super::{
    GuardLimits, MAX_METHOD_BYTES, is_token_byte, is_value_byte,
    lengths::{check_transfer_encoding, parse_content_length},
    misplaced,
};
use crate::{RequestRefusal, host::Authority};

/// A complete and faultless head.
#[derive(Debug)]
pub(super) struct Head {
    /// Its length with the empty line at its end, in bytes.
    pub(super) bytes: usize,
    /// How its body ends.
    pub(super) framing: Framing,
    /// Whether it asks for a WebSocket.
    pub(super) websocket: bool,
}

/// How a body ends (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body.
    Nothing,
    /// After so many bytes; at least one.
    Length(u64),
    /// After its last chunk and trailers.
    Chunked,
}

/// How far a head was read, and what it said. Ranges and offsets count from the head's first byte.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    scanned: usize,
    line_start: usize,
    has_begun: bool,
    after_blank_line: bool,
    request_line: Option<RequestLine>,
    field_count: usize,
    host: Option<Range<usize>>,
    content_length: Option<u64>,
    is_chunked: bool,
    upgrade_count: usize,
    upgrade_is_websocket: bool,
    has_upgrade_option: bool,
}

#[derive(Debug)]
struct RequestLine {
    is_http10: bool,
    is_get: bool,
    /// Where host and port are in a target in absolute form.
    authority: Option<Range<usize>>,
}

/// How many bytes at the start of these stand for themselves in a line; the next one ends it or is refused.
fn plain_run(bytes: &[u8]) -> usize {
    // Sixteen at a time and without a branch for each, which compilers turn into vector instructions.
    let is_plain = |chunk: &&[u8; 16]| chunk.iter().fold(true, |plain, byte| plain & (*byte >= b' ' && *byte != 0x7f));
    let run = 16 * bytes.as_chunks::<16>().0.iter().take_while(is_plain).count();
    run + bytes[run..].iter().take_while(|byte| is_value_byte(**byte)).count()
}

impl HeadScan {
    /// Whether more than the empty line that may precede a request is there.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Reads on in `held`, the bytes from the head's start: None while the head is incomplete.
    pub(super) fn advance(&mut self, held: &[u8], limits: &GuardLimits) -> Result<Option<Head>, RequestRefusal> {
        self.has_begun = !matches!(held, b"" | b"\r" | b"\r\n");
        loop {
            let (bound, too_long) = self.line_bound(limits);
            let end = held.len().min(bound);
            let unread = held.get(self.scanned..end).unwrap_or_default();
            self.scanned += plain_run(unread);
            if self.scanned >= end {
                return if held.len() < bound { Ok(None) } else { Err(too_long) };
            }
            if held[self.scanned] != b'\r' {
                return Err(misplaced(held[self.scanned]));
            }
            if self.scanned + 1 >= bound {
                return Err(too_long);
            }
            match held.get(self.scanned + 1) {
                None => return Ok(None),
                Some(b'\n') => {}
                Some(_) => return Err(RequestRefusal::BareCarriageReturn),
            }
            let line = self.line_start..self.scanned;
            self.scanned += 2;
            self.line_start = self.scanned;
            if self.take_line(held, line, limits)? {
                return self.finish(held).map(Some);
            }
        }
    }

    /// Where the line that is being read must have ended, line end included, and why not if it has not.
    fn line_bound(&self, limits: &GuardLimits) -> (usize, RequestRefusal) {
        if self.request_line.is_some() {
            return (limits.max_head_bytes, RequestRefusal::HeadLong);
        }
        // A method, a target and a version with their spaces and line end.
        let line_bytes = MAX_METHOD_BYTES + 1 + limits.max_target_bytes + 1 + "HTTP/1.1\r\n".len();
        let bound = self.line_start + line_bytes;
        if bound < limits.max_head_bytes {
            (bound, RequestRefusal::TargetLong)
        } else {
            (limits.max_head_bytes, RequestRefusal::HeadLong)
        }
    }

    /// Takes a line without its end; true for the empty line that ends the head.
    fn take_line(&mut self, held: &[u8], line: Range<usize>, limits: &GuardLimits) -> Result<bool, RequestRefusal> {
        match (&self.request_line, line.is_empty()) {
            //= RFC 9112 section 2.2
            //# a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line
            (None, true) if !self.after_blank_line => self.after_blank_line = true,
            (None, _) => self.request_line = Some(RequestLine::parse(held, line, limits)?),
            (Some(_), true) => return Ok(true),
            (Some(_), false) => self.take_field(held, line, limits)?,
        }
        Ok(false)
    }

    fn take_field(&mut self, held: &[u8], line: Range<usize>, limits: &GuardLimits) -> Result<(), RequestRefusal> {
        let field = &held[line.clone()];
        self.field_count += 1;
        if self.field_count > limits.max_header_count {
            return Err(RequestRefusal::TooManyFields);
        }
        if matches!(field.first(), Some(b' ' | b'\t')) {
            return Err(RequestRefusal::FoldedField);
        }
        let colon = field.iter().position(|byte| *byte == b':').ok_or(RequestRefusal::FieldName)?;
        let name = &field[..colon];
        if name.is_empty() || !name.iter().copied().all(is_token_byte) {
            //= RFC 9112 section 5.1
            //# A server MUST reject, with a response status code of 400 (Bad Request), any received request message
            //# that contains whitespace between a header field name and colon.
            let only_space = matches!(name.last(), Some(b' ' | b'\t'));
            return Err(if only_space { RequestRefusal::SpaceBeforeColon } else { RequestRefusal::FieldName });
        }
        // No control character but the tab comes this far, so this trims spaces and tabs alone.
        let value = field[colon + 1..].trim_ascii();
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.is_some() {
                    return Err(RequestRefusal::SeveralHosts);
                }
                Authority::parse(value)?;
                let untrimmed = &field[colon + 1..];
                let start = line.start + colon + 1 + (untrimmed.len() - untrimmed.trim_ascii_start().len());
                self.host = Some(start..start + value.len());
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.content_length.is_some() {
                    return Err(RequestRefusal::SeveralContentLengths);
                }
                self.content_length = Some(parse_content_length(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.is_chunked {
                    return Err(RequestRefusal::TransferEncoding);
                }
                check_transfer_encoding(value)?;
                self.is_chunked = true;
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade_count += 1;
                self.upgrade_is_websocket = value.eq_ignore_ascii_case(b"websocket");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.has_upgrade_option |= crate::connection_options::has_option(value, b"upgrade");
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges the head as a whole.
    fn finish(&self, held: &[u8]) -> Result<Head, RequestRefusal> {
        let Some(line) = &self.request_line else { return Err(RequestRefusal::RequestLine) };
        if self.host.is_none() && !line.is_http10 {
            return Err(RequestRefusal::MissingHost);
        }
        if let (Some(host), Some(authority)) = (&self.host, &line.authority)
            && !Authority::parse(&held[host.clone()])?.is_same(&Authority::parse(&held[authority.clone()])?)
        {
            return Err(RequestRefusal::ConflictingHosts);
        }
        let framing = match (self.is_chunked, self.content_length) {
            //= RFC 9112 section 6.1
            //# A server MAY reject a request that contains both Content-Length and Transfer-Encoding
            (true, Some(_)) => return Err(RequestRefusal::BothLengths),
            (true, None) if line.is_http10 => return Err(RequestRefusal::TransferEncodingVersion),
            (true, None) => Framing::Chunked,
            (false, None | Some(0)) => Framing::Nothing,
            (false, Some(length)) => Framing::Length(length),
        };
        let websocket = line.is_get
            && !line.is_http10
            && self.upgrade_count == 1
            && self.upgrade_is_websocket
            && self.has_upgrade_option
            && framing == Framing::Nothing;
        Ok(Head { bytes: self.scanned, framing, websocket })
    }
}

impl RequestLine {
    /// Reads `method SP target SP version` (RFC 9112 section 3).
    fn parse(held: &[u8], range: Range<usize>, limits: &GuardLimits) -> Result<Self, RequestRefusal> {
        let line = &held[range.clone()];
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(RequestRefusal::RequestLine);
        };
        let is_http10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            //= RFC 9110 section 2.5
            //# the recipient SHOULD process the message as if it was in the highest minor version within that major version
            //# to which the recipient is conformant
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => false,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
                return Err(RequestRefusal::Version);
            }
            _ => return Err(RequestRefusal::RequestLine),
        };
        if method.is_empty() || method.len() > MAX_METHOD_BYTES || !method.iter().copied().all(is_token_byte) {
            return Err(RequestRefusal::RequestLine);
        }
        if method == b"CONNECT" {
            return Err(RequestRefusal::Connect);
        }
        if target.len() > limits.max_target_bytes {
            return Err(RequestRefusal::TargetLong);
        }
        let target_start = range.start + method.len() + 1;
        let authority =
            Self::check_target(method, target)?.map(|range| range.start + target_start..range.end + target_start);
        Ok(Self { is_http10, is_get: method == b"GET", authority })
    }

    /// Judges the target and says where the authority is in one of absolute form (RFC 9112 section 3.2).
    fn check_target(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, RequestRefusal> {
        // A fragment is none of a server's business; parsers that cut it off see another target than those that do not.
        if !target.iter().all(|byte| matches!(byte, b'!'..=b'~') && *byte != b'#') {
            return Err(RequestRefusal::Target);
        }
        // Neither does RFC 3986 allow these, nor does the server's parser take them: it would answer without a word.
        let query = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let (path, query) = target.split_at(query);
        if path.iter().any(|byte| matches!(byte, b'<' | b'>' | b'`'))
            || query.iter().any(|byte| matches!(byte, b'<' | b'>' | b'"'))
        {
            return Err(RequestRefusal::Target);
        }
        if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
            return Ok(None);
        }
        let scheme_bytes = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
            .ok_or(RequestRefusal::Target)?
            .len();
        let rest = &target[scheme_bytes..];
        let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        Authority::parse(&rest[..authority_bytes])?;
        Ok(Some(scheme_bytes..scheme_bytes + authority_bytes))
    }
}

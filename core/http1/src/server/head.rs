//! Reads one request head, line by line as it comes.

use std::ops::Range;

use sallyport_http::{
    RequestRefusal,
    connection::has_option,
    host::Authority,
    lengths::{check_transfer_encoding, parse_content_length},
    syntax::{is_token_byte, is_value_byte},
};

use super::{
    Config, misplaced,
    request::{FieldSpan, RequestLine},
};
use crate::{body::Framing, limits::MAX_METHOD_BYTES};

/// How far a head was read, and what its lines say.
#[derive(Debug, Default)]
pub(super) struct HeadDecoder {
    /// How many bytes of the head were read.
    scanned: usize,
    line_start: usize,
    after_blank_line: bool,
    /// Whether the head is faultless, once that is known.
    outcome: Option<Result<(), RequestRefusal>>,
    line: Option<RequestLine>,
    fields: Vec<FieldSpan>,
    host: Option<Range<usize>>,
    content_length: Option<u64>,
    is_chunked: bool,
    has_close_option: bool,
    has_keep_alive_option: bool,
    has_expect_continue: bool,
    takes_trailers: bool,
}

/// How many bytes at the start belong to a line. The next byte ends the line or is refused.
fn plain_run(bytes: &[u8]) -> usize {
    // Sixteen at a time, without a branch for each byte: compilers make vector instructions of it.
    let is_plain = |chunk: &&[u8; 16]| chunk.iter().fold(true, |plain, byte| plain & (*byte >= b' ' && *byte != 0x7f));
    let run = 16 * bytes.as_chunks::<16>().0.iter().take_while(is_plain).count();
    run + bytes[run..].iter().take_while(|byte| is_value_byte(**byte)).count()
}

impl HeadDecoder {
    /// The head's length in bytes, once it is whole.
    pub(super) fn bytes(&self) -> usize {
        self.scanned
    }

    /// Forgets the head. The memory for the places of fields stays.
    pub(super) fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Whether the client keeps the connection open behind the response (RFC 9112 section 9.3).
    pub(super) fn keeps_connection(&self) -> bool {
        !self.has_close_option && (!self.is_http10() || self.has_keep_alive_option)
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub(super) fn expects_continue(&self) -> bool {
        self.has_expect_continue && !self.is_http10() && self.framing() != Framing::Length(0)
    }

    /// Whether the client takes trailers behind a response in chunks (RFC 9110 section 10.1.4).
    pub(super) fn takes_trailers(&self) -> bool {
        self.takes_trailers
    }

    /// Whether the version is HTTP/1.0.
    pub(super) fn is_http10(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_http10)
    }

    /// Where the parts of a whole head are.
    pub(super) fn parts(&self) -> (Option<&RequestLine>, &[FieldSpan]) {
        (self.line.as_ref(), &self.fields)
    }

    /// How the body of a whole head ends (RFC 9112 section 6.3).
    pub(super) fn framing(&self) -> Framing {
        if self.is_chunked { Framing::Chunked } else { Framing::Length(self.content_length.unwrap_or(0)) }
    }

    /// Reads on in `held`, the bytes from the head's start. Returns whether the head is whole.
    ///
    /// # Errors
    /// The head is refused. Each further call says so again.
    pub(super) fn advance(&mut self, held: &[u8], config: &Config) -> Result<bool, RequestRefusal> {
        if self.outcome.is_none() {
            self.outcome = self.read_lines(held, config).transpose();
        }
        self.outcome.map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Reads the lines that are whole; `None` while the last one is missing.
    fn read_lines(&mut self, held: &[u8], config: &Config) -> Result<Option<()>, RequestRefusal> {
        loop {
            let (bound, too_long) = self.line_bound(config);
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
            if self.take_line(held, line, config)? {
                return self.check_whole(held).map(Some);
            }
        }
    }

    /// Where the line under way must have ended, with its line end, and the refusal if it has not.
    fn line_bound(&self, config: &Config) -> (usize, RequestRefusal) {
        if self.line.is_some() {
            return (config.max_head_bytes, RequestRefusal::HeadLong);
        }
        // A method, a target and a version with their spaces and line end.
        let line_bytes = MAX_METHOD_BYTES + 1 + config.max_target_bytes + 1 + "HTTP/1.1\r\n".len();
        let bound = self.line_start + line_bytes;
        if bound < config.max_head_bytes {
            (bound, RequestRefusal::TargetLong)
        } else {
            (config.max_head_bytes, RequestRefusal::HeadLong)
        }
    }

    /// Takes a line without its end; true for the empty line that ends the head.
    fn take_line(&mut self, held: &[u8], line: Range<usize>, config: &Config) -> Result<bool, RequestRefusal> {
        match (&self.line, line.is_empty()) {
            //= RFC 9112 section 2.2
            //# a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line
            (None, true) if !self.after_blank_line => self.after_blank_line = true,
            (None, _) => self.line = Some(RequestLine::parse(held, line, config)?),
            (Some(_), true) => return Ok(true),
            (Some(_), false) => self.take_field(held, line, config)?,
        }
        Ok(false)
    }

    fn take_field(&mut self, held: &[u8], line: Range<usize>, config: &Config) -> Result<(), RequestRefusal> {
        let field = &held[line.clone()];
        if self.fields.len() == config.max_header_count {
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
        let untrimmed = &field[colon + 1..];
        let value = untrimmed.trim_ascii();
        let value_start = line.start + colon + 1 + (untrimmed.len() - untrimmed.trim_ascii_start().len());
        self.fields.push(FieldSpan { start: line.start, name_bytes: colon, value_start, value_bytes: value.len() });
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.is_some() {
                    return Err(RequestRefusal::SeveralHosts);
                }
                Authority::parse(value)?;
                self.host = Some(value_start..value_start + value.len());
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
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.has_close_option |= has_option(value, b"close");
                self.has_keep_alive_option |= has_option(value, b"keep-alive");
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.has_expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            2 if name.eq_ignore_ascii_case(b"te") => self.takes_trailers |= has_option(value, b"trailers"),
            _ => {}
        }
        Ok(())
    }

    /// Checks what only a whole head shows.
    fn check_whole(&self, held: &[u8]) -> Result<(), RequestRefusal> {
        let Some(line) = &self.line else { return Err(RequestRefusal::RequestLine) };
        if self.host.is_none() && !line.is_http10 {
            return Err(RequestRefusal::MissingHost);
        }
        if let (Some(host), Some(authority)) = (&self.host, &line.authority)
            && !Authority::parse(&held[host.clone()])?.is_same(&Authority::parse(&held[authority.clone()])?)
        {
            return Err(RequestRefusal::ConflictingHosts);
        }
        match (self.is_chunked, self.content_length) {
            //= RFC 9112 section 6.1
            //# A server MAY reject a request that contains both Content-Length and Transfer-Encoding
            (true, Some(_)) => Err(RequestRefusal::BothLengths),
            (true, None) if line.is_http10 => Err(RequestRefusal::TransferEncodingVersion),
            _ => Ok(()),
        }
    }
}

impl RequestLine {
    /// Reads `method SP target SP version` (RFC 9112 section 3).
    fn parse(held: &[u8], range: Range<usize>, config: &Config) -> Result<Self, RequestRefusal> {
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
            //# the recipient SHOULD process the message as if it was in the highest minor version within that major
            //# version to which the recipient is conformant
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
        if target.len() > config.max_target_bytes {
            return Err(RequestRefusal::TargetLong);
        }
        let target_start = range.start + method.len() + 1;
        let authority =
            Self::check_target(method, target)?.map(|range| range.start + target_start..range.end + target_start);
        Ok(Self {
            method: range.start..range.start + method.len(),
            target: target_start..target_start + target.len(),
            authority,
            is_http10,
        })
    }

    /// Checks the target. Returns where the authority is in a target of absolute form (RFC 9112 section 3.2).
    fn check_target(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, RequestRefusal> {
        // A server has no use for a fragment. Parsers that cut it off see another target than others.
        if !target.iter().all(|byte| matches!(byte, b'!'..=b'~') && *byte != b'#') {
            return Err(RequestRefusal::Target);
        }
        // RFC 3986 does not allow these, and `Uri` does not hold them.
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

/// One event of a stream: what stood between two blank lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The name of the event; empty when it has none.
    pub name: &'a [u8],
    /// Its data; several lines are joined by line feeds.
    pub data: &'a [u8],
}

/// A line or an event is longer than the reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {longest} bytes")]
pub struct SseTooLong {
    longest: usize,
}

/// Reads a stream of server-sent events as it comes, in pieces that are cut anywhere.
///
/// Lines end with CR, LF or both; a byte order mark at the beginning, comments, identifiers and
/// retry times are passed over. An event that is not ended by a blank line is none: the stream was
/// cut. Memory is bounded by the longest event, and the bytes need not be text.
#[derive(Debug)]
pub struct SseParser {
    longest: usize,
    /// The line that has begun.
    line: Vec<u8>,
    name: Vec<u8>,
    /// The data lines of the event that has begun, each with a line feed.
    data: Vec<u8>,
    /// The last line ended with CR, so that an LF now belongs to it.
    after_carriage_return: bool,
    at_beginning: bool,
    too_long: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl SseParser {
    /// A parser that refuses lines and events of more than `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            after_carriage_return: false,
            at_beginning: true,
            too_long: false,
        }
    }

    /// Takes the next bytes and hands out each event that they complete. After an error nothing
    /// more is handed out, and each further call gives the error again.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseTooLong> {
        while !bytes.is_empty() && !self.too_long {
            if std::mem::take(&mut self.after_carriage_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let taken = self.line.len() + self.data.len();
            if part.len() > self.longest.saturating_sub(taken) {
                self.give_up();
                break;
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_carriage_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(&mut each);
        }
        if self.too_long {
            return Err(SseTooLong {
                longest: self.longest,
            });
        }
        Ok(())
    }

    /// Whether nothing has begun that is not ended yet. A stream that ends elsewhere was cut.
    pub fn is_between_events(&self) -> bool {
        !self.too_long && self.line.is_empty() && self.name.is_empty() && self.data.is_empty()
    }

    fn end_line(&mut self, each: &mut impl FnMut(SseEvent<'_>)) {
        let mut line = self.line.as_slice();
        if std::mem::take(&mut self.at_beginning) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            if let [data @ .., b'\n'] = self.data.as_slice() {
                each(SseEvent {
                    name: &self.name,
                    data,
                });
            }
            self.name.clear();
            self.data.clear();
        } else {
            let colon = line.iter().position(|byte| *byte == b':');
            let (field, value) = match colon {
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => (line, &[][..]),
            };
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"data" => {
                    self.data.extend_from_slice(value);
                    self.data.push(b'\n');
                }
                b"event" => {
                    self.name.clear();
                    self.name.extend_from_slice(value);
                }
                _ => {}
            }
        }
        self.line.clear();
    }

    fn give_up(&mut self) {
        self.too_long = true;
        self.line = Vec::new();
        self.name = Vec::new();
        self.data = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Events = Vec<(String, String)>;

    fn parse(longest: usize, parts: &[&[u8]]) -> (Events, bool) {
        let mut parser = SseParser::new(longest);
        let mut events = Events::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut ended = true;
        for part in parts {
            ended = parser
                .push(part, |event| {
                    events.push((text(event.name), text(event.data)));
                })
                .is_ok();
        }
        (events, ended)
    }

    fn events(stream: &str) -> Events {
        parse(1 << 20, &[stream.as_bytes()]).0
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn events_have_names_and_data() {
        assert_eq!(
            events("event: a\ndata: 1\n\ndata:2\r\rdata\r\n\r\n"),
            [event("a", "1"), event("", "2"), event("", "")]
        );
        assert_eq!(
            events("data:  x\ndata: y: z\nid: 5\nretry: 1\nother\n\n"),
            [event("", " x\ny: z")]
        );
    }

    #[test]
    fn what_is_no_event_is_passed_over() {
        assert_eq!(events(": ping\n\nevent: a\n\n\n\ndata: 1\n\n").len(), 1);
        // The name went with the event that had no data.
        assert_eq!(events("event: a\n\ndata: 1\n\n"), [event("", "1")]);
        assert_eq!(
            events("\u{feff}data: 1\n\n\u{feff}data: 2\n\n"),
            [event("", "1")]
        );
    }

    #[test]
    fn an_event_that_was_cut_is_none() {
        for cut in ["data: 1", "data: 1\n", "data: 1\r", "event: a\ndata: 1\r\n"] {
            assert_eq!(events(cut), [], "{cut:?}");
        }
    }

    #[test]
    fn the_end_of_a_stream_may_cut_an_event() {
        let mut parser = SseParser::new(100);
        assert!(parser.is_between_events());
        for (part, between) in [
            ("data: 1\n", false),
            ("\n", true),
            (": a comment", false),
            ("\n", true),
            ("event: x\n", false),
            ("\r", true),
            ("\n", true),
        ] {
            parser.push(part.as_bytes(), |_| {}).unwrap();
            assert_eq!(parser.is_between_events(), between, "{part:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_for_good() {
        assert!(parse(9, &[b"data: 123\n\n"]).1);
        assert_eq!(
            parse(9, &[b"data: 123\n\n", b"data: 1234\n\n", b"data: 1\n\n"]),
            (vec![event("", "123")], false)
        );
        // Each line is short, the event is not.
        assert!(!parse(9, &[b"data: 1\n".repeat(10).as_slice()]).1);
        assert!(!parse(9, &[b"1234567890"]).1);
        assert!(parse(9, &[b":234567\n".repeat(10).as_slice()]).1);
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"event: ".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b":".to_vec()),
            Just(BYTE_ORDER_MARK.to_vec()),
            proptest::collection::vec(any::<u8>(), 0..8),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            stream in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
            longest in 1_usize..60,
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(parse(longest, &parts), parse(longest, &[&stream]));
        }

        #[test]
        fn data_comes_back(lines in proptest::collection::vec("[^\r\n]{0,20}", 1..5)) {
            let mut stream = String::new();
            for line in &lines {
                stream.push_str(&format!("data: {line}\r\n"));
            }
            stream.push_str("\r\n");
            prop_assert_eq!(events(&stream), [event("", &lines.join("\n"))]);
        }
    }
}

use std::fmt::Write;
use std::ops::Range;

use super::text;

/// How deep a pointer goes and how long a name it spells out: beyond that it stops at the ancestor,
/// so that an error about a hostile body stays small.
const DEPTH_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;

/// The RFC 6901 pointer of the value (or the member) in which the byte at `offset` lies, the root
/// being `""`. `text` need be neither valid nor whole: it is read only up to there.
pub(crate) fn pointer_at(text: &[u8], offset: usize) -> String {
    let mut path = Path::default();
    let mut at = 0;
    while at < text.len() && at <= offset {
        match text[at] {
            b'"' => {
                let end = string_end(text, at);
                path.string(at + 1..end.saturating_sub(1));
                if end > offset {
                    break;
                }
                at = end;
                continue;
            }
            // A container's own braces belong to itself, not to what is in it.
            b'{' if at < offset => path.open(Frame::Object(None)),
            b'[' if at < offset => path.open(Frame::Array(0)),
            b'}' | b']' => path.close(),
            b',' => path.comma(),
            _ => {}
        }
        at += 1;
    }
    path.render(text)
}

/// Offset after the string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at += text::plain_run(text, at);
        match text.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return text.len(),
        }
    }
}

#[derive(Debug)]
enum Frame {
    /// In an object; the name of the member, once it has come.
    Object(Option<Range<usize>>),
    /// In an array, at this index.
    Array(usize),
}

/// The open containers down to where the reading is.
#[derive(Debug, Default)]
struct Path {
    frames: Vec<Frame>,
    /// Open containers beyond the frames that are kept.
    deeper: usize,
}

impl Path {
    fn open(&mut self, frame: Frame) {
        if self.frames.len() < DEPTH_MAX {
            self.frames.push(frame);
        } else {
            self.deeper += 1;
        }
    }

    fn close(&mut self) {
        match self.deeper.checked_sub(1) {
            Some(deeper) => self.deeper = deeper,
            None => drop(self.frames.pop()),
        }
    }

    fn comma(&mut self) {
        match self.innermost() {
            Some(Frame::Object(name)) => *name = None,
            Some(Frame::Array(index)) => *index += 1,
            None => {}
        }
    }

    fn string(&mut self, content: Range<usize>) {
        if let Some(Frame::Object(name @ None)) = self.innermost() {
            *name = Some(content);
        }
    }

    fn innermost(&mut self) -> Option<&mut Frame> {
        if self.deeper == 0 {
            self.frames.last_mut()
        } else {
            None
        }
    }

    fn render(self, text: &[u8]) -> String {
        let mut pointer = String::new();
        for frame in self.frames {
            match frame {
                Frame::Array(index) => {
                    let _ = write!(pointer, "/{index}");
                }
                Frame::Object(Some(name)) if name.len() <= NAME_BYTES_MAX => {
                    let raw = text.get(name).unwrap_or_default();
                    let name = text::unescape(raw);
                    pointer.push('/');
                    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                }
                Frame::Object(_) => break,
            }
        }
        pointer
    }
}

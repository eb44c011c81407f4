//! Reading position in a text: tokens on demand, and errors that name line and column.

use std::fmt;

/// The text is not a graph. Line and column count from 1, columns in characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    pub line: usize,
    pub column: usize,
    /// What was expected and what stands there.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

pub(crate) type Parsed<T> = Result<T, ParseError>;

/// A number as written, its sign aside.
pub(crate) enum Number {
    Int(u64),
    Float(f64),
}

pub(crate) struct Cursor<'t> {
    text: &'t str,
    /// Byte offset, always on a character boundary.
    pub at: usize,
    /// Start and end of the blanks stepped over last.
    blank: (usize, usize),
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0, blank: (0, 0) }
    }

    /// `expected …, found …` at the next token.
    pub fn expected(&mut self, what: &str) -> ParseError {
        self.skip();
        let found = match self.rest().chars().next() {
            None => "the end of the text".to_string(),
            Some(c) if is_word(c) => {
                let word: String = self.rest().chars().take_while(|c| is_word(*c)).take(40).collect();
                format!("`{word}`")
            }
            Some(c) => format!("`{}`", c.escape_debug()),
        };
        self.error(self.at, format!("expected {what}, found {found}"))
    }

    /// An error at a byte offset.
    pub fn error(&self, at: usize, message: String) -> ParseError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        ParseError {
            line: 1 + before.bytes().filter(|b| *b == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
            message,
        }
    }

    pub fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over blanks, newlines and comments.
    pub fn skip(&mut self) {
        let start = self.at;
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(b'/') if self.rest().starts_with("//") => self.skip_comment(),
                _ => break,
            }
        }
        if self.at > start {
            self.blank = (start, self.at);
        }
    }

    /// The next token's first byte.
    pub fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.byte()
    }

    /// Takes a punctuation mark if it comes next.
    pub fn eat(&mut self, mark: u8) -> bool {
        let there = self.peek() == Some(mark);
        self.at += usize::from(there);
        there
    }

    pub fn expect(&mut self, mark: u8) -> Parsed<()> {
        if self.eat(mark) { Ok(()) } else { Err(self.expected(&format!("`{}`", mark as char))) }
    }

    /// The statement must end here: a newline, `}` or the end comes before anything else.
    pub fn end_of_statement(&mut self) -> Parsed<()> {
        // Looking for an optional word may have stepped over the newline already.
        let from = if self.blank.1 == self.at { self.blank.0 } else { self.at };
        self.skip();
        let new_line = self.text[from..self.at].contains('\n');
        if new_line || matches!(self.byte(), None | Some(b'}')) {
            Ok(())
        } else {
            Err(self.expected("the end of the line"))
        }
    }

    /// Takes the longest run of bytes that satisfy `f` right here (ASCII ones only, so boundaries hold).
    pub fn run_of(&mut self, f: impl Fn(u8) -> bool) -> &'t str {
        let start = self.at;
        while self.byte().is_some_and(|b| b.is_ascii() && f(b)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// `[A-Za-z_][A-Za-z0-9_]*`, or None (and nothing taken).
    pub fn word(&mut self) -> Option<&'t str> {
        match self.peek() {
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                Some(self.run_of(|b| b.is_ascii_alphanumeric() || b == b'_'))
            }
            _ => None,
        }
    }

    /// Takes `word` if it comes next as a whole word.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let start = self.at;
        let there = self.word() == Some(word);
        if !there {
            self.at = start;
        }
        there
    }

    /// The run of `[A-Za-z0-9_.]` that names a value or an operator.
    pub fn dotted(&mut self) -> &'t str {
        self.run_of(is_name_byte)
    }

    /// Digits, optionally with a point and an exponent.
    pub fn number(&mut self) -> Parsed<Number> {
        self.skip();
        let start = self.at;
        let digits = self.run_of(|b| b.is_ascii_digit()).len();
        if digits == 0 {
            return Err(self.expected("a number"));
        }
        let mut float = false;
        if self.byte() == Some(b'.') {
            float = true;
            self.at += 1;
            self.run_of(|b| b.is_ascii_digit());
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            float = true;
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.run_of(|b| b.is_ascii_digit()).is_empty() {
                return Err(self.expected("the digits of an exponent"));
            }
        }
        let text = &self.text[start..self.at];
        if float {
            let x = text.parse().map_err(|_| self.error(start, format!("`{text}` is not a number")))?;
            Ok(Number::Float(x))
        } else {
            let x = text.parse().map_err(|_| self.error(start, format!("integer {text:.40} does not fit 64 bits")))?;
            Ok(Number::Int(x))
        }
    }

    /// A string in double quotes with JSON's escapes.
    pub fn string(&mut self) -> Parsed<String> {
        let start = self.at;
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let plain = self.rest().find(['"', '\\', '\n']).unwrap_or(self.rest().len());
            out.push_str(&self.rest()[..plain]);
            self.at += plain;
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.error(start, "this string has no closing `\"` on its line".to_string())),
            }
        }
    }

    /// What stands after a backslash.
    fn escape(&mut self) -> Parsed<char> {
        let at = self.at;
        let c = self.byte();
        self.at += usize::from(c.is_some_and(|b| b.is_ascii()));
        match c {
            Some(b'n') => Ok('\n'),
            Some(b't') => Ok('\t'),
            Some(b'r') => Ok('\r'),
            Some(b'b') => Ok('\u{8}'),
            Some(b'f') => Ok('\u{c}'),
            Some(b @ (b'"' | b'\\' | b'/')) => Ok(b as char),
            Some(b'u') => {
                let bad = self.error(at, "expected four hex digits of a character after `\\u`".to_string());
                let high = self.hex4().ok_or_else(|| bad.clone())?;
                // JSON writes a character beyond 16 bits as two halves.
                let code = if (0xd800..0xdc00).contains(&high) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex4().filter(|l| (0xdc00..0xe000).contains(l)).ok_or_else(|| bad.clone())?;
                    0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(code).ok_or(bad)
            }
            _ => Err(self.error(at, "unknown escape: one of \\n \\t \\r \\b \\f \\\" \\\\ \\/ \\uXXXX".to_string())),
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    fn skip_comment(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }
}

/// A byte of a value's or operator's name.
pub(crate) fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'.'
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

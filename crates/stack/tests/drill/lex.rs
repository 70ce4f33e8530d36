//! From text to words, numbers and signs.

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Number(i64),
    /// A number with a point: nanoseconds, if it is a time; and as it stands there.
    Decimal(i64, String),
    Word(String),
    Text(String),
    /// In backquotes.
    Command(String),
    /// `%{ }%`
    Code,
    Dots,
    Sign(char),
    End,
}

/// Tokens, each with its line.
pub fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut lexer = Lexer { rest: text, line: 1 };
    let mut all = Vec::new();
    while let Some(token) = lexer.next()? {
        all.push(token);
    }
    all.push((lexer.line, Token::End));
    Ok(all)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Up to and with `end`, which is left out.
    fn until(&mut self, end: &str) -> Result<&'a str, String> {
        let at = self.rest.find(end).ok_or_else(|| format!("line {}: there is no {end}", self.line))?;
        let taken = self.take(at);
        self.take(end.len());
        Ok(taken)
    }

    fn skip(&mut self) -> Result<(), String> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.take(blanks);
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(end);
            } else if self.rest.starts_with("/*") {
                self.until("*/")?;
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Option<(usize, Token)>, String> {
        self.skip()?;
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let token = if self.rest.starts_with("...") {
            self.take(3);
            Token::Dots
        } else if self.rest.starts_with("%{") {
            self.until("}%")?;
            Token::Code
        } else if first == '"' {
            self.take(1);
            Token::Text(self.until("\"")?.to_string())
        } else if first == '`' {
            self.take(1);
            Token::Command(self.until("`")?.to_string())
        } else if let Some((len, token)) = number(self.rest) {
            self.take(len);
            token
        } else if is_word(first) {
            let len = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            Token::Word(self.take(len).to_string())
        } else {
            self.take(first.len_utf8());
            Token::Sign(first)
        };
        Ok(Some((line, token)))
    }
}

/// A number, and how long it is.
fn number(text: &str) -> Option<(usize, Token)> {
    let minus = usize::from(text.starts_with('-'));
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    if let Some(hex) = text.strip_prefix("0x") {
        let len = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        return Some((2 + len, Token::Number(i64::from_str_radix(&hex[..len], 16).ok()?)));
    }
    let whole = digits(minus);
    let mut end = minus + whole;
    let rest = &text[end..];
    let decimal = rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    if decimal {
        end += 1 + digits(end + 1);
    } else if whole == 0 {
        return None;
    }
    // What goes on with letters is a word.
    if text[end..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let text = &text[..end];
    if decimal {
        let value: f64 = text.parse().ok()?;
        return Some((end, Token::Decimal((value * 1e9).round() as i64, text.to_string())));
    }
    Some((end, Token::Number(text.parse().ok()?)))
}

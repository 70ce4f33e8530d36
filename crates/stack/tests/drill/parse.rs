//! From words to a script.

use super::lex::{Token, tokens};
use super::script::*;

/// Reads a script. What is wrong is told with its line.
pub fn parse(name: &str, text: &str) -> Result<Script, String> {
    let mut script = Script { name: name.to_string(), ..Script::default() };
    let mut lines = String::new();
    for line in text.lines() {
        // Settings stand on lines of their own, or behind `//` where they are nobody's but ours.
        let bare = line.trim_start().trim_start_matches("//").trim();
        if let Some(setting) = bare.strip_prefix("--") {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            script.settings.push((name.trim().to_string(), value.trim().to_string()));
        } else {
            lines += line;
        }
        lines.push('\n');
    }
    let wrong = |why: String| format!("{name}: {why}");
    let mut parser = Parser { tokens: tokens(&lines).map_err(wrong)?, at: 0 };
    while *parser.peek() != Token::End {
        let number = parser.line();
        let line = parser.event().map_err(|why| format!("{name}:{}: {why}", parser.line()))?;
        script.lines.push(Line { number: if line.1 > 0 { line.1 } else { number }, ..line.0 });
    }
    Ok(script)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn line(&self) -> usize {
        self.tokens[self.at].0
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].1
    }

    fn peek_next(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].1
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, sign: char) -> bool {
        *self.peek() == Token::Sign(sign)
    }

    fn eat(&mut self, sign: char) -> bool {
        let found = self.is(sign);
        if found {
            self.next();
        }
        found
    }

    fn need(&mut self, sign: char) -> Parsed<()> {
        if self.eat(sign) { Ok(()) } else { Err(format!("{sign:?} is missing before {:?}", self.peek())) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn word(&mut self) -> Parsed<String> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(format!("a word is missing before {other:?}")),
        }
    }

    fn number(&mut self) -> Parsed<i64> {
        match self.next() {
            Token::Number(n) => Ok(n),
            other => Err(format!("a number is missing before {other:?}")),
        }
    }

    fn small<T: TryFrom<i64>>(&mut self) -> Parsed<T> {
        let n = self.number()?;
        T::try_from(n).map_err(|_| format!("{n} is too large or too small"))
    }

    /// A number of 32 bits.
    fn sequence(&mut self) -> Parsed<u32> {
        self.small()
    }

    fn time(&mut self) -> Parsed<Nanos> {
        let nanos = match self.next() {
            Token::Number(n) => n.saturating_mul(1_000_000_000),
            Token::Decimal(nanos, _) => nanos,
            other => return Err(format!("a time is missing before {other:?}")),
        };
        u64::try_from(nanos).map_err(|_| "a time before the beginning".to_string())
    }

    /// One line; and its number, if that is not the first token's.
    fn event(&mut self) -> Parsed<(Line, usize)> {
        let when = match self.peek() {
            // The first and last command may stand there without a time.
            Token::Command(_) => When::After(0),
            _ => self.when()?,
        };
        let number = self.line();
        let what = match self.peek().clone() {
            Token::Command(command) => {
                self.next();
                What::Command(command)
            }
            Token::Code => {
                self.next();
                What::Code
            }
            Token::Sign('<' | '>') => self.packet()?,
            Token::Word(word) if word == "assert" => self.check()?,
            _ => What::Call(self.call()?),
        };
        Ok((Line { number, when, what }, number))
    }

    fn when(&mut self) -> Parsed<When> {
        if self.eat('*') {
            return Ok(When::Any);
        }
        let relative = self.eat('+');
        let first = self.time()?;
        if self.eat('~') {
            let again = self.eat('+');
            if again != relative {
                return Err("both ends of a range are times, or both are distances".to_string());
            }
            let last = self.time()?;
            return Ok(if relative { When::AfterBetween(first, last) } else { When::Between(first, last) });
        }
        Ok(if relative { When::After(first) } else { When::At(first) })
    }

    fn packet(&mut self) -> Parsed<What> {
        let inbound = self.eat('<') || !self.eat('>');
        let mut segment = Segment { inbound, options: Some(Vec::new()), ..Segment::default() };
        if self.is('[') || self.is('(') {
            self.next();
            let word = self.word()?;
            match word.as_str() {
                "noecn" => segment.ecn = Some(0),
                "ect1" => segment.ecn = Some(1),
                "ect0" => segment.ecn = Some(2),
                "ce" => segment.ecn = Some(3),
                "ect01" => segment.capable = true,
                other => return Err(format!("{other} of a packet is not understood")),
            }
            if !self.eat(']') {
                self.need(')')?;
            }
        }
        if self.eat_word("icmp") {
            return self.icmp(inbound);
        }
        if matches!(self.peek(), Token::Number(_)) && *self.peek_next() == Token::Sign('>') {
            let source = self.small()?;
            self.need('>')?;
            segment.ports = Some((source, self.small()?));
        }
        segment.flags = self.flags()?;
        segment.seq = self.sequence()?;
        self.need(':')?;
        let end = self.sequence()?;
        self.need('(')?;
        segment.len = self.sequence()?;
        self.need(')')?;
        if end != segment.seq.wrapping_add(segment.len) {
            return Err(format!("{}:{end} are not {} octets", segment.seq, segment.len));
        }
        if self.eat_word("ack") {
            segment.ack = Some(self.sequence()?);
        }
        if self.eat_word("win") {
            segment.window = Some(self.small()?);
        }
        if self.eat_word("urg") {
            segment.urgent = self.small()?;
        }
        if self.eat('<') {
            if *self.peek() == Token::Dots {
                self.next();
                segment.options = None;
            } else {
                segment.options = Some(self.options()?);
            }
            self.need('>')?;
        }
        if segment.flags.contains('.') != segment.ack.is_some() {
            return Err("the flag '.' and a number to be acknowledged go together".to_string());
        }
        Ok(What::Segment(segment))
    }

    fn flags(&mut self) -> Parsed<String> {
        let mut flags = String::new();
        while !matches!(self.peek(), Token::Number(_)) {
            match self.next() {
                Token::Word(word) if word.chars().all(|c| "FSRPUEWA".contains(c)) => flags += &word,
                Token::Sign('.') => flags.push('.'),
                Token::Sign('-') => return Ok(flags),
                other => return Err(format!("flags are missing before {other:?}")),
            }
        }
        Ok(flags)
    }

    fn options(&mut self) -> Parsed<Vec<TcpOption>> {
        let mut all = Vec::new();
        loop {
            let word = self.word()?;
            all.push(match word.as_str() {
                "mss" => TcpOption::Mss(self.small()?),
                "nop" => TcpOption::Nop,
                "eol" => TcpOption::Eol,
                "wscale" => TcpOption::WindowScale(self.small()?),
                "sackOK" => TcpOption::SackOk,
                "sack" => {
                    let mut blocks = Vec::new();
                    while matches!(self.peek(), Token::Number(_)) {
                        let left = self.sequence()?;
                        self.need(':')?;
                        blocks.push((left, self.sequence()?));
                    }
                    TcpOption::Sack(blocks)
                }
                "TS" => {
                    if !self.eat_word("val") {
                        return Err("val is missing".to_string());
                    }
                    let value = self.sequence()?;
                    if !self.eat_word("ecr") {
                        return Err("ecr is missing".to_string());
                    }
                    TcpOption::Timestamps(value, self.sequence()?)
                }
                "hex" => TcpOption::Octets(self.octets()?),
                other => return Err(format!("the option {other} is not understood")),
            });
            if !self.eat(',') {
                return Ok(all);
            }
        }
    }

    /// Octets: `hex "0304ff"`.
    fn octets(&mut self) -> Parsed<Vec<u8>> {
        let Token::Text(digits) = self.next() else { return Err("\"octets\" are missing".to_string()) };
        let octet = |at| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let all: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
        all.ok_or_else(|| format!("{digits:?} are no octets"))
    }

    fn icmp(&mut self, inbound: bool) -> Parsed<What> {
        if !inbound {
            return Err("ICMP messages that go are not looked at".to_string());
        }
        let kind = self.word()?;
        let code = if matches!(self.peek(), Token::Word(word) if word != "mtu") {
            self.word()?
        } else {
            String::new()
        };
        let mtu = if self.eat_word("mtu") { Some(self.sequence()?) } else { None };
        let mut quoted = None;
        if self.eat('[') {
            let seq = self.sequence()?;
            self.need(':')?;
            let end = self.sequence()?;
            quoted = Some((seq, end.wrapping_sub(seq)));
            while !self.eat(']') {
                self.next();
            }
        }
        Ok(What::Icmp(Icmp { kind, code, mtu, quoted }))
    }

    fn call(&mut self) -> Parsed<Call> {
        let until = if *self.peek() == Token::Dots {
            self.next();
            Some(self.time()?)
        } else {
            None
        };
        let name = self.word()?;
        self.need('(')?;
        let arguments = self.values(')')?;
        self.need('=')?;
        let answer = self.value()?;
        let mut errno = None;
        if matches!(self.peek(), Token::Word(_)) && !self.is_word("assert") {
            errno = Some(self.word()?);
        }
        if self.eat('(') {
            while !self.eat(')') {
                self.next();
            }
        }
        Ok(Call { until, name, arguments, answer, errno })
    }

    /// Values up to a sign that closes their list.
    fn values(&mut self, end: char) -> Parsed<Vec<Value>> {
        let mut all = Vec::new();
        while !self.eat(end) {
            all.push(self.value()?);
            if !self.is(end) {
                self.need(',')?;
            }
        }
        Ok(all)
    }

    fn value(&mut self) -> Parsed<Value> {
        let first = self.single()?;
        if !self.is('|') {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.eat('|') {
            all.push(self.single()?);
        }
        Ok(Value::Or(all))
    }

    fn single(&mut self) -> Parsed<Value> {
        Ok(match self.next() {
            Token::Dots => Value::Dots,
            Token::Number(n) => Value::Number(n),
            Token::Text(mut text) => {
                if *self.peek() == Token::Dots {
                    self.next();
                }
                while let Token::Text(more) = self.peek() {
                    text += more;
                    self.next();
                }
                Value::Text(text)
            }
            Token::Sign('[') => Value::List(self.values(']')?),
            Token::Sign('{') => {
                let mut all = Vec::new();
                while !self.eat('}') {
                    let name = match (self.peek().clone(), self.peek_next()) {
                        (Token::Word(name), Token::Sign('=' | '(')) => {
                            self.next();
                            // msg_iov(1)=[...]: how many there are is seen.
                            if self.eat('(') {
                                self.values(')')?;
                            }
                            self.need('=')?;
                            name
                        }
                        _ => String::new(),
                    };
                    all.push((name, self.value()?));
                    if !self.is('}') {
                        self.need(',')?;
                    }
                }
                Value::Fields(all)
            }
            // htons(8080), inet_addr("10.0.0.1"): what stands in them.
            Token::Word(_) if self.eat('(') => {
                self.values(')')?.pop().ok_or_else(|| "nothing between brackets".to_string())?
            }
            Token::Word(word) => Value::Word(word),
            other => return Err(format!("a value is missing before {other:?}")),
        })
    }

    /// `assert(4, cwnd == 10, state == ESTABLISHED)`: our own.
    fn check(&mut self) -> Parsed<What> {
        self.next();
        self.need('(')?;
        let mut check = Check { fd: None, all: Vec::new() };
        if matches!(self.peek(), Token::Number(_)) {
            check.fd = Some(self.number()?);
            if !self.is(')') {
                self.need(',')?;
            }
        }
        while !self.eat(')') {
            let mut name = self.word()?;
            if self.eat('.') {
                name = format!("{name}.{}", self.word()?);
            }
            let relation = self.relation()?;
            check.all.push((name, relation, self.single()?));
            if !self.is(')') {
                self.need(',')?;
            }
        }
        Ok(What::Check(check))
    }

    fn relation(&mut self) -> Parsed<Relation> {
        let first = self.next();
        let and_equal = self.eat('=');
        match (first, and_equal) {
            (Token::Sign('='), true) => Ok(Relation::Equal),
            (Token::Sign('!'), true) => Ok(Relation::Differs),
            (Token::Sign('<'), true) => Ok(Relation::AtMost),
            (Token::Sign('<'), false) => Ok(Relation::Less),
            (Token::Sign('>'), true) => Ok(Relation::AtLeast),
            (Token::Sign('>'), false) => Ok(Relation::More),
            (other, _) => Err(format!("==, !=, <, <=, > or >= is missing before {other:?}")),
        }
    }
}

//! YAML as a tree whose nodes know their lines.

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::FileError;

/// What a value that is not there is called.
pub(super) const EMPTY: &str = "empty";

/// A node of a file.
#[derive(Debug)]
pub(super) struct Node {
    /// Where it begins, from 1 on.
    pub(super) line: usize,
    /// What it is.
    pub(super) content: Content,
}

/// What a node is.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Content {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl Eq for Node {}

impl Content {
    /// In words that follow "is".
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Null => EMPTY,
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// Its text, or what it is instead.
    pub(super) fn text(&self) -> Result<&str, &'static str> {
        match &self.content {
            Content::Text(text) => Ok(text),
            other => Err(other.describe()),
        }
    }
}

/// The root of the one document, when there is something in it.
pub(super) fn read(text: &str) -> At<Option<Node>> {
    let mut tree = Tree {
        text,
        events: Parser::new_from_str(text),
    };
    let mut root = None;
    while let Some((event, span)) = tree.next()? {
        match event {
            Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart(..) if root.is_some() => {
                return Err((span.start.line(), FileError::SecondDocument));
            }
            Event::DocumentStart(..) => {
                let (event, span) = tree.some()?;
                root = Some(tree.node(event, span)?);
            }
            _ => break,
        }
    }
    Ok(root)
}

/// Events of the parser on their way to a tree.
struct Tree<'t> {
    text: &'t str,
    events: Parser<'t, StrInput<'t>>,
}

/// A value, or what is wrong and in which line.
type At<T> = Result<T, (usize, FileError)>;

impl<'t> Tree<'t> {
    fn next(&mut self) -> At<Option<(Event<'t>, Span)>> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => Err(self.syntax(&error)),
        }
    }

    fn some(&mut self) -> At<(Event<'t>, Span)> {
        let ended = || (1, FileError::Syntax("it ends too early".to_owned()));
        self.next()?.ok_or_else(ended)
    }

    /// The node that begins with an event. The parser bounds the depth.
    fn node(&mut self, event: Event<'t>, span: Span) -> At<Node> {
        let line = span.start.line();
        let plain = |anchor: usize, tagged: bool| match (anchor, tagged) {
            (0, false) => Ok(()),
            (0, true) => Err((line, FileError::Tag)),
            _ => Err((line, FileError::Anchor)),
        };
        let content = match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                match (&*text, style) {
                    ("" | "~" | "null" | "Null" | "NULL", ScalarStyle::Plain) => Content::Null,
                    _ => Content::Text(text.into_owned()),
                }
            }
            Event::SequenceStart(_, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.list()?
            }
            Event::MappingStart(_, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.map()?
            }
            _ => return Err((line, FileError::Anchor)),
        };
        Ok(Node { line, content })
    }

    fn list(&mut self) -> At<Content> {
        let mut items = Vec::new();
        loop {
            match self.some()? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, span) => items.push(self.node(event, span)?),
            }
        }
    }

    fn map(&mut self) -> At<Content> {
        let mut entries = Vec::new();
        loop {
            let key = match self.some()? {
                (Event::MappingEnd, _) => return Ok(Content::Map(entries)),
                (event, span) => self.node(event, span)?,
            };
            let (event, span) = self.some()?;
            entries.push((key, self.node(event, span)?));
        }
    }

    fn syntax(&self, error: &ScanError) -> (usize, FileError) {
        let line = error.marker().line();
        let text = self.text.lines().nth(line.saturating_sub(1)).unwrap_or("");
        let indent = &text[..text.len() - text.trim_start().len()];
        if indent.contains('\t') {
            return (line, FileError::Tab);
        }
        let mut what = error.info().replace('\n', " ");
        if what.contains("unknown anchor") {
            return (line, FileError::Anchor);
        }
        // `bootstrap: [::]:19092`, the likeliest value that YAML takes apart.
        let value = text.split_once(": ").map_or(text, |(_, value)| value);
        let is_whole = [("[", "]"), ("{", "}")]
            .iter()
            .any(|(open, close)| value.starts_with(open) && value.trim_end().ends_with(close));
        if !is_whole && value.trim_start().starts_with(['[', '{', '%', '@', '`']) {
            what.push_str("; text that begins with a mark such as [ wants quotes: \"[::]:19092\"");
        } else if what.contains("expected key") || what.contains("mapping values") {
            what.push_str("; is the line indented like its neighbours?");
        }
        (line, FileError::Syntax(what))
    }
}

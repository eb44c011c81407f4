//! Operator schemas as PyTorch prints them: `aten::mm(Tensor self, Tensor mat2) -> Tensor`.

use crate::provider::{ResolvedArg, ResolvedCall};
use permalloy_ir::DType;

/// A parsed schema.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// `aten::mm`
    pub name: String,
    /// `out`, or empty.
    pub overload: String,
    pub args: Vec<SchemaArg>,
    pub returns: Vec<SchemaType>,
    /// The returns that are arguments written in place.
    pub returns_arguments: bool,
}

/// One argument.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemaArg {
    pub name: String,
    pub ty: SchemaType,
    pub default: Option<ResolvedArg>,
    pub keyword_only: bool,
}

/// Type of an argument or of a result.
#[derive(Clone, PartialEq, Debug)]
pub enum SchemaType {
    Tensor,
    Int,
    Float,
    Bool,
    Str,
    Scalar,
    ScalarType,
    Device,
    Layout,
    MemoryFormat,
    Generator,
    Optional(Box<SchemaType>),
    /// With the length that a lone number is repeated to.
    List(Box<SchemaType>, Option<usize>),
    /// Anything that we do not pass.
    Other(String),
}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, String> {
        let bad = |what: &str| format!("cannot read the schema `{text}`: {what}");
        let open = text.find('(').ok_or_else(|| bad("no argument list"))?;
        let close = matching(text, open).ok_or_else(|| bad("the argument list does not end"))?;
        let (name, overload) = text[..open].trim().split_once('.').unwrap_or((text[..open].trim(), ""));
        let mut args = Vec::new();
        let mut keyword_only = false;
        for part in split(&text[open + 1..close]) {
            if part == "*" {
                keyword_only = true;
                continue;
            }
            args.push(argument(part, keyword_only).ok_or_else(|| bad(part))?);
        }
        let returns = text[close + 1..].trim().strip_prefix("->").ok_or_else(|| bad("no results"))?.trim();
        let inner = if returns.starts_with('(') && matching(returns, 0) == Some(returns.len() - 1) {
            &returns[1..returns.len() - 1]
        } else {
            returns
        };
        let parts = split(inner);
        Ok(Schema {
            name: name.into(),
            overload: overload.into(),
            args,
            returns_arguments: !parts.is_empty() && parts.iter().all(|p| p.contains("!)")),
            returns: parts.iter().map(|p| typed(p).0).collect(),
        })
    }

    /// The call's arguments in the order of the schema, defaults filled in.
    pub fn bind(&self, call: &ResolvedCall) -> Result<Vec<ResolvedArg>, String> {
        if let Some((name, _)) = call.kwargs.iter().find(|(n, _)| !self.args.iter().any(|a| a.name == **n)) {
            return Err(format!("{} has no argument {name}", self.name));
        }
        let positions = self.args.iter().filter(|a| !a.keyword_only).count();
        if call.args.len() > positions {
            return Err(format!("{} takes {positions} positional arguments, got {}", self.name, call.args.len()));
        }
        self.args
            .iter()
            .enumerate()
            .map(|(i, a)| {
                let positional = if a.keyword_only { None } else { call.args.get(i) };
                let keyword = call.kwargs.iter().find(|(n, _)| **n == *a.name).map(|(_, v)| v);
                let given = positional.or(keyword).cloned().or_else(|| a.default.clone());
                let given = given.ok_or_else(|| format!("{} needs an argument {}", self.name, a.name))?;
                Ok(a.ty.coerce(given))
            })
            .collect()
    }
}

impl SchemaType {
    /// The value as the type wants it, where Python would convert silently: an int for a float, one number for a list.
    fn coerce(&self, value: ResolvedArg) -> ResolvedArg {
        match (self, value) {
            (SchemaType::Optional(_), ResolvedArg::None) => ResolvedArg::None,
            (SchemaType::Optional(inner), v) => inner.coerce(v),
            (SchemaType::Float, ResolvedArg::Int(i)) => ResolvedArg::Float(i as f64),
            (SchemaType::Float, ResolvedArg::Bool(b)) => ResolvedArg::Float(f64::from(u8::from(b))),
            (SchemaType::Int, ResolvedArg::Bool(b)) => ResolvedArg::Int(i64::from(b)),
            (SchemaType::Bool, ResolvedArg::Int(i)) => ResolvedArg::Bool(i != 0),
            (SchemaType::ScalarType, ResolvedArg::Int(i)) => {
                i32::try_from(i).ok().and_then(DType::from_scalar_type).map_or(ResolvedArg::Int(i), ResolvedArg::DType)
            }
            (SchemaType::List(inner, _), ResolvedArg::List(items)) => {
                ResolvedArg::List(items.into_iter().map(|v| inner.coerce(v)).collect())
            }
            (SchemaType::List(inner, length), v) if !matches!(v, ResolvedArg::None | ResolvedArg::Tensor(_)) => {
                ResolvedArg::List(vec![inner.coerce(v); length.unwrap_or(1)])
            }
            (_, v) => v,
        }
    }
}

/// Characters with their positions, less those in quotes.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut quote, mut escaped) = (None, false);
    text.char_indices().filter(move |(_, c)| {
        let inside = quote.is_some();
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if *c == q => quote = None,
            (None, '"' | '\'') => quote = Some(*c),
            _ => {}
        }
        !inside && quote.is_none()
    })
}

/// Position of the bracket that closes the one at `open`.
fn matching(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, c) in unquoted(text).skip_while(|(i, _)| *i < open) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Parts between commas outside of brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (i, c) in unquoted(text) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

fn argument(text: &str, keyword_only: bool) -> Option<SchemaArg> {
    let (ty, rest) = typed(text);
    let (name, default) = match rest.split_once('=') {
        Some((name, value)) => (name.trim(), Some(literal(value.trim())?)),
        None => (rest.trim(), None),
    };
    (!name.is_empty()).then(|| SchemaArg { name: name.into(), ty, default, keyword_only })
}

/// The type at the start of the text, and what follows it.
fn typed(text: &str) -> (SchemaType, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(text.len());
    let mut rest = &text[end..];
    let mut ty = match &text[..end] {
        "Tensor" => SchemaType::Tensor,
        "int" | "SymInt" => SchemaType::Int,
        "float" => SchemaType::Float,
        "bool" => SchemaType::Bool,
        "str" => SchemaType::Str,
        "Scalar" => SchemaType::Scalar,
        "ScalarType" => SchemaType::ScalarType,
        "Device" => SchemaType::Device,
        "Layout" => SchemaType::Layout,
        "MemoryFormat" => SchemaType::MemoryFormat,
        "Generator" => SchemaType::Generator,
        other => SchemaType::Other(other.into()),
    };
    loop {
        if let Some(r) = rest.strip_prefix('?') {
            (ty, rest) = (SchemaType::Optional(Box::new(ty)), r);
        } else if rest.starts_with('[')
            && let Some(close) = matching(rest, 0)
        {
            ty = SchemaType::List(Box::new(ty), rest[1..close].parse().ok());
            rest = &rest[close + 1..];
        } else if rest.starts_with('(')
            && let Some(close) = matching(rest, 0)
        {
            // Alias annotation.
            rest = &rest[close + 1..];
        } else {
            return (ty, rest);
        }
    }
}

fn literal(text: &str) -> Option<ResolvedArg> {
    Some(match text {
        "None" => ResolvedArg::None,
        "True" => ResolvedArg::Bool(true),
        "False" => ResolvedArg::Bool(false),
        "Mean" => ResolvedArg::Int(1),
        "contiguous_format" | "preserve_format" | "channels_last" => ResolvedArg::MemoryFormat(text.into()),
        "strided" => ResolvedArg::Layout(text.into()),
        "inf" => ResolvedArg::Float(f64::INFINITY),
        "-inf" => ResolvedArg::Float(f64::NEG_INFINITY),
        _ if text.starts_with('[') => ResolvedArg::List(
            split(text.strip_prefix('[')?.strip_suffix(']')?).iter().map(|t| literal(t)).collect::<Option<_>>()?,
        ),
        _ if text.starts_with(['"', '\'']) => ResolvedArg::Str(text.trim_matches(['"', '\'']).into()),
        _ => match text.parse::<i64>() {
            Ok(i) => ResolvedArg::Int(i),
            Err(_) => ResolvedArg::Float(text.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_types_defaults_and_results() {
        let s = Schema::parse(
            "aten::convolution_backward.x(Tensor(a!) g, SymInt[]? bias_sizes, int[2] stride=[1, 1], *, bool[3] mask, \
             float? eps=None, str mode=\"a, (b\", Scalar alpha=1, int[1] k=0) -> (Tensor, Tensor(b), int n)",
        )
        .unwrap();
        assert_eq!((s.name.as_str(), s.overload.as_str()), ("aten::convolution_backward", "x"));
        let types: Vec<_> = s.args.iter().map(|a| a.ty.clone()).collect();
        let list = |t, n| SchemaType::List(Box::new(t), n);
        assert_eq!(types[1], SchemaType::Optional(Box::new(list(SchemaType::Int, None))));
        assert_eq!(types[2], list(SchemaType::Int, Some(2)));
        assert_eq!(types[3], list(SchemaType::Bool, Some(3)));
        assert_eq!(s.args[5].default, Some(ResolvedArg::Str("a, (b".into())));
        assert!(!s.args[2].keyword_only && s.args[3].keyword_only);
        assert_eq!(s.returns, vec![SchemaType::Tensor, SchemaType::Tensor, SchemaType::Int]);
        assert!(!s.returns_arguments);
        assert!(Schema::parse("aten::add_(Tensor(a!) self) -> Tensor(a!)").unwrap().returns_arguments);
        assert_eq!(Schema::parse("aten::x(Tensor self) -> ()").unwrap().returns, vec![]);
        assert!(Schema::parse("aten::x(Tensor self").is_err());
    }

    #[test]
    fn binds_positions_keywords_and_defaults() {
        let s = Schema::parse("aten::f(Tensor x, float p, int[2] k=[1, 1], *, bool b=False) -> Tensor").unwrap();
        let mut call = ResolvedCall {
            op: "aten.f.default".into(),
            loc: None,
            args: vec![ResolvedArg::Tensor(0), ResolvedArg::Int(2), ResolvedArg::Int(3)],
            kwargs: vec![],
            tensors: vec![],
            results: vec![],
            devices: vec![],
        };
        let three = ResolvedArg::Int(3);
        let bound = s.bind(&call).unwrap();
        assert_eq!(bound[1..3], [ResolvedArg::Float(2.0), ResolvedArg::List(vec![three.clone(), three])]);
        assert_eq!(bound[3], ResolvedArg::Bool(false));
        call.kwargs.push(("q".into(), ResolvedArg::None));
        assert!(s.bind(&call).unwrap_err().contains("no argument q"));
        call.kwargs.clear();
        call.args.truncate(1);
        assert!(s.bind(&call).unwrap_err().contains("needs an argument p"));
    }
}

//! A question as agents write it, and as their models read about it.

use askd_core::{
    self, Choice, MAX_CHOICES, MAX_DESCRIPTION, MAX_HEADER, MAX_LABEL, MAX_PLACEHOLDER, MAX_QUESTION_ID, MAX_TEXT,
    Style,
};
use schemars::JsonSchema;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Treats an empty field as not given: clients of strict schemas fill every field.
pub(super) fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A question as it is written. What a model reads about each field is its comment here.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "")]
pub struct Draft {
    /// The question, whole and understandable by itself.
    #[schemars(length(min = 1, max = MAX_TEXT))]
    pub question: String,
    /// Your own id for it, which comes back in details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_QUESTION_ID))]
    pub id: Option<String>,
    /// A few words above the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_HEADER))]
    pub header: Option<String>,
    /// Default: select with options, text without. confirm is Yes or No, or exactly two options that rename them.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["text", "select", "multi-select", "confirm"]))]
    pub kind: Option<String>,
    /// The same as type multi-select.
    #[serde(default, alias = "multiSelect", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "multiSelect", extend("default" = false))]
    pub multi_select: Option<bool>,
    /// As other tools call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub multiple: Option<bool>,
    /// What can be chosen; leave it out for a typed answer. Labels differ in more than upper and lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_CHOICES))]
    pub options: Option<Vec<DraftChoice>>,
    /// false: the person may skip it; it is then left out of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub required: Option<bool>,
    /// What an empty input shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_PLACEHOLDER))]
    pub placeholder: Option<String>,
    /// Whether an answer in the person's own words is possible beside the options. Default true; never for confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<bool>,
}

/// An option: a label alone, or with a description.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(description = "")]
pub enum DraftChoice {
    Label(#[schemars(length(min = 1, max = MAX_LABEL))] String),
    Described {
        #[schemars(length(min = 1, max = MAX_LABEL))]
        label: String,
        /// What choosing it leads to.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(max = MAX_DESCRIPTION))]
        description: Option<String>,
        /// How its button looks; at most one option with each.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>", extend("enum" = ["primary", "danger"]))]
        style: Option<Style>,
    },
}

// By hand, because `untagged` would lose which field of an option is wrong.
impl<'de> Deserialize<'de> for DraftChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Described {
            label: String,
            #[serde(default)]
            description: Option<String>,
            #[serde(default, deserialize_with = "style")]
            style: Option<Style>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = DraftChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an option: a label, or {\"label\", \"description\"}")
            }
            fn visit_str<E: de::Error>(self, label: &str) -> Result<DraftChoice, E> {
                Ok(DraftChoice::Label(label.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DraftChoice, A::Error> {
                let Described { label, description, style } =
                    Described::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(DraftChoice::Described { label, description, style })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A style; an empty one is none.
fn style<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Style>, D::Error> {
    let name = given(Option::<String>::deserialize(deserializer)?);
    name.map(|name| Style::deserialize(de::value::StringDeserializer::<D::Error>::new(name))).transpose()
}

impl Draft {
    pub(super) fn without_empty(self) -> Self {
        let options = self.options.map(|options| options.into_iter().map(DraftChoice::without_empty).collect());
        Self {
            id: given(self.id),
            header: given(self.header),
            kind: given(self.kind),
            placeholder: given(self.placeholder),
            options,
            ..self
        }
    }
}

impl DraftChoice {
    fn without_empty(self) -> Self {
        match self {
            Self::Described { label, description, style } => {
                Self::Described { label, description: given(description), style }
            }
            Self::Label(_) => self,
        }
    }
}

impl From<DraftChoice> for Choice {
    fn from(choice: DraftChoice) -> Self {
        match choice {
            DraftChoice::Label(label) => Self { label, ..Self::default() },
            DraftChoice::Described { label, description, style } => Self { label, description, style },
        }
    }
}

impl From<Draft> for askd_core::Draft {
    fn from(draft: Draft) -> Self {
        Self {
            id: draft.id,
            text: draft.question,
            header: draft.header,
            kind: draft.kind,
            multiple: draft.multi_select == Some(true) || draft.multiple == Some(true),
            choices: draft.options.unwrap_or_default().into_iter().map(Choice::from).collect(),
            required: draft.required,
            placeholder: draft.placeholder,
            custom: draft.custom,
        }
    }
}

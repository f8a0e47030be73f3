//! One case per limit: at the limit it passes, one above it Slack's message names the place.

use serde_json::{Value, json};

use super::*;

fn plain(len: usize) -> Value {
    json!({"type": "plain_text", "text": "x".repeat(len)})
}

fn mrkdwn(len: usize) -> Value {
    json!({"type": "mrkdwn", "text": "x".repeat(len)})
}

fn option(text: usize, value: usize) -> Value {
    json!({"text": plain(text), "value": "v".repeat(value)})
}

fn options(count: usize) -> Value {
    (0..count).map(|index| json!({"text": plain(1), "value": index.to_string()})).collect()
}

fn button(more: &Value) -> Value {
    let mut button = json!({"type": "button", "action_id": "a", "text": plain(1)});
    merge(&mut button, more);
    button
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

fn actions(elements: &Value) -> Value {
    json!({"type": "actions", "elements": elements})
}

fn input(element: &Value) -> Value {
    json!({"type": "input", "label": plain(1), "element": element})
}

fn text_input(more: &Value) -> Value {
    let mut element = json!({"type": "plain_text_input", "action_id": "t"});
    merge(&mut element, more);
    input(&element)
}

fn choices(kind: &str, options: &Value) -> Value {
    input(&json!({"type": kind, "action_id": "c", "options": options}))
}

fn confirm(title: usize, text: usize, yes: usize, no: usize) -> Value {
    let confirm = json!({"title": plain(title), "text": mrkdwn(text), "confirm": plain(yes), "deny": plain(no)});
    actions(&json!([button(&json!({"confirm": confirm}))]))
}

#[track_caller]
fn fits(block: &Value) {
    assert_eq!(check(std::slice::from_ref(block), Surface::Message, "/blocks"), Ok(()), "{block}");
}

/// What is wrong with this one block: pointer and text, of the first problem.
fn wrong(block: &Value) -> String {
    match check(std::slice::from_ref(block), Surface::Message, "/blocks") {
        Err(Refused::Invalid(problems)) => problems.first().cloned().unwrap_or_default(),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn limit(name: &str, at: &Value, above: &Value, message: &str) {
    fits(at);
    assert_eq!(wrong(above), message, "{name}");
}

/// For a maximum of characters: what is built with `max` passes, with `max + 1` and with 0 it does not.
#[track_caller]
fn length_limit(max: usize, pointer: &str, build: impl Fn(usize) -> Value) {
    let message = format!("must be less than {} characters [json-pointer:{pointer}]", max + 1);
    limit(pointer, &build(max), &build(max + 1), &message);
    assert_eq!(wrong(&build(0)), format!("must be more than 0 characters [json-pointer:{pointer}]"));
}

#[test]
fn lengths_of_blocks() {
    length_limit(3000, "/blocks/0/text/text", |len| json!({"type": "section", "text": mrkdwn(len)}));
    length_limit(2000, "/blocks/0/fields/0/text", |len| json!({"type": "section", "fields": [plain(len)]}));
    length_limit(150, "/blocks/0/text/text", |len| json!({"type": "header", "text": plain(len)}));
    length_limit(2000, "/blocks/0/elements/0/text", |len| json!({"type": "context", "elements": [mrkdwn(len)]}));
    length_limit(255, "/blocks/0/block_id", |len| json!({"type": "divider", "block_id": "b".repeat(len)}));
    length_limit(2000, "/blocks/0/label/text", |len| {
        let mut block = text_input(&json!({}));
        block["label"] = plain(len);
        block
    });
    length_limit(2000, "/blocks/0/hint/text", |len| {
        let mut block = text_input(&json!({}));
        block["hint"] = plain(len);
        block
    });
    length_limit(
        2000,
        "/blocks/0/alt_text",
        |len| json!({"type": "image", "image_url": "http://x", "alt_text": "x".repeat(len)}),
    );
    length_limit(
        3000,
        "/blocks/0/image_url",
        |len| json!({"type": "image", "image_url": "x".repeat(len), "alt_text": "x"}),
    );
    length_limit(
        2000,
        "/blocks/0/title/text",
        |len| json!({"type": "image", "image_url": "http://x", "alt_text": "x", "title": plain(len)}),
    );
}

#[test]
fn lengths_of_elements() {
    let first = |more: Value| actions(&json!([button(&more)]));
    length_limit(75, "/blocks/0/elements/0/text/text", |len| first(json!({"text": plain(len)})));
    length_limit(255, "/blocks/0/elements/0/action_id", |len| first(json!({"action_id": "a".repeat(len)})));
    length_limit(3000, "/blocks/0/elements/0/url", |len| first(json!({"url": "u".repeat(len)})));
    length_limit(75, "/blocks/0/elements/0/accessibility_label", |len| {
        first(json!({"accessibility_label": "u".repeat(len)}))
    });
    limit(
        "button value",
        &first(json!({"value": "v".repeat(2000)})),
        &first(json!({"value": "v".repeat(2001)})),
        "must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]",
    );
    length_limit(150, "/blocks/0/element/placeholder/text", |len| text_input(&json!({"placeholder": plain(len)})));
    limit(
        "initial value",
        &text_input(&json!({"initial_value": "v".repeat(3000)})),
        &text_input(&json!({"initial_value": "v".repeat(3001)})),
        "must be less than 3001 characters [json-pointer:/blocks/0/element/initial_value]",
    );
    let confirm_at = |part: &str| format!("/blocks/0/elements/0/confirm/{part}/text");
    length_limit(100, &confirm_at("title"), |len| confirm(len, 1, 1, 1));
    length_limit(300, &confirm_at("text"), |len| confirm(1, len, 1, 1));
    length_limit(30, &confirm_at("confirm"), |len| confirm(1, 1, len, 1));
    length_limit(30, &confirm_at("deny"), |len| confirm(1, 1, 1, len));
}

#[test]
fn lengths_of_options() {
    for kind in ["radio_buttons", "checkboxes", "static_select"] {
        length_limit(75, "/blocks/0/element/options/0/text/text", |len| choices(kind, &json!([option(len, 1)])));
        length_limit(75, "/blocks/0/element/options/0/value", |len| choices(kind, &json!([option(1, len)])));
        length_limit(75, "/blocks/0/element/options/0/description/text", |len| {
            let mut option = option(1, 1);
            option["description"] = plain(len);
            choices(kind, &json!([option]))
        });
    }
}

#[test]
fn counts() {
    let no_more = |max: usize, at: &str| format!("no more than {max} items allowed [json-pointer:/blocks/0/{at}]");
    let row = |count: usize| -> Value {
        actions(&(0..count).map(|index| button(&json!({"action_id": format!("a{index}")}))).collect::<Value>())
    };
    limit("actions", &row(25), &row(26), &no_more(25, "elements"));
    let context = |count: usize| json!({"type": "context", "elements": vec![mrkdwn(1); count]});
    limit("context", &context(10), &context(11), &no_more(10, "elements"));
    let fields = |count: usize| json!({"type": "section", "fields": vec![mrkdwn(1); count]});
    limit("fields", &fields(10), &fields(11), &no_more(10, "fields"));
    for (kind, max) in [("radio_buttons", 10), ("checkboxes", 10), ("static_select", 100), ("multi_static_select", 100)]
    {
        limit(kind, &choices(kind, &options(max)), &choices(kind, &options(max + 1)), &no_more(max, "element/options"));
    }
    let overflow = |count: usize| actions(&json!([{"type": "overflow", "action_id": "o", "options": options(count)}]));
    limit("overflow", &overflow(5), &overflow(6), &no_more(5, "elements/0/options"));
    for (empty, at) in [
        (row(0), "elements"),
        (context(0), "elements"),
        (fields(0), "fields"),
        (choices("checkboxes", &json!([])), "element/options"),
    ] {
        assert_eq!(wrong(&empty), format!("no fewer than 1 items allowed [json-pointer:/blocks/0/{at}]"));
    }
}

#[test]
fn number_of_blocks() {
    let dividers = |count: usize| vec![json!({"type": "divider"}); count];
    assert_eq!(check(&dividers(50), Surface::Message, "/blocks"), Ok(()));
    assert_eq!(
        check(&dividers(51), Surface::Message, "/blocks"),
        Err(Refused::Invalid(vec!["no more than 50 items allowed [json-pointer:/blocks]".into()]))
    );
    assert_eq!(check(&dividers(100), Surface::Modal, "/view/blocks"), Ok(()));
    assert!(check(&dividers(101), Surface::Modal, "/view/blocks").is_err());
}

#[test]
fn total_of_characters() {
    let sections = |len: usize| vec![json!({"type": "section", "text": mrkdwn(len)}); 5];
    let most = (12_000 - 5 * 20) / 5;
    assert_eq!(check(&sections(most), Surface::Message, "/blocks"), Ok(()));
    assert_eq!(check(&sections(most + 1), Surface::Message, "/blocks"), Err(Refused::TooLong));
    // As users of the real thing measured it: 9,597 characters in 50 blocks pass, 11,341 in 45 do not.
    let spread = |chars: usize, blocks: usize| vec![json!({"type": "section", "text": mrkdwn(chars / blocks)}); blocks];
    assert_eq!(check(&spread(9_597, 50), Surface::Message, "/blocks"), Ok(()));
    assert_eq!(check(&spread(11_341, 45), Surface::Message, "/blocks"), Err(Refused::TooLong));
    let markdown = |len: usize| json!({"type": "markdown", "text": "x".repeat(len)});
    fits(&markdown(11_980));
    assert!(wrong(&markdown(12_001)).starts_with("must be less than 12001 characters"));
    let two = [markdown(6_001), markdown(6_000)];
    assert!(matches!(check(&two, Surface::Message, "/blocks"), Err(Refused::Invalid(_))));
}

#[test]
fn lengths_of_text_inputs() {
    limit(
        "max_length",
        &text_input(&json!({"max_length": 3000})),
        &text_input(&json!({"max_length": 3001})),
        "must be less than or equal to 3000 [json-pointer:/blocks/0/element/max_length]",
    );
    fits(&text_input(&json!({"min_length": 3000, "max_length": 3000, "multiline": true})));
    assert!(wrong(&text_input(&json!({"max_length": 0}))).starts_with("must be greater than or equal to 1"));
    assert!(wrong(&text_input(&json!({"min_length": 5, "max_length": 4}))).contains("min_length"));
    assert!(wrong(&text_input(&json!({"multiline": "yes"}))).starts_with("must provide a boolean"));
    fits(&text_input(&json!({"dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]}})));
    assert!(
        wrong(&text_input(&json!({"dispatch_action_config": {"trigger_actions_on": ["on_blur"]}}))).contains("enum")
    );
}

#[test]
fn ids_are_unique() {
    let twice = [json!({"type": "divider", "block_id": "b"}), json!({"type": "divider", "block_id": "b"})];
    assert_eq!(
        check(&twice, Surface::Message, "/blocks"),
        Err(Refused::Invalid(vec!["block_id already exists: b [json-pointer:/blocks/1/block_id]".into()]))
    );
    let same_action = actions(&json!([button(&json!({})), button(&json!({}))]));
    assert_eq!(wrong(&same_action), "action_id already exists: a [json-pointer:/blocks/0/elements/1/action_id]");
    // The same action in two blocks is fine.
    let two_blocks = [actions(&json!([button(&json!({}))])), actions(&json!([button(&json!({}))]))];
    assert_eq!(check(&two_blocks, Surface::Message, "/blocks"), Ok(()));
}

#[test]
fn mrkdwn_only_where_it_is_allowed() {
    let unsupported = |at: &str| format!("unsupported type: mrkdwn [json-pointer:/blocks/0/{at}/type]");
    assert_eq!(wrong(&json!({"type": "header", "text": mrkdwn(1)})), unsupported("text"));
    assert_eq!(wrong(&actions(&json!([button(&json!({"text": mrkdwn(1)}))]))), unsupported("elements/0/text"));
    let mut label = text_input(&json!({}));
    label["label"] = mrkdwn(1);
    assert_eq!(wrong(&label), unsupported("label"));
    let marked = json!([{"text": mrkdwn(1), "value": "v"}]);
    fits(&choices("radio_buttons", &marked));
    fits(&choices("checkboxes", &marked));
    assert_eq!(wrong(&choices("static_select", &marked)), unsupported("element/options/0/text"));
    let described = json!([{"text": plain(1), "value": "v", "description": mrkdwn(1)}]);
    assert_eq!(wrong(&choices("checkboxes", &described)), unsupported("element/options/0/description"));
    assert_eq!(wrong(&text_input(&json!({"placeholder": mrkdwn(1)}))), unsupported("element/placeholder"));
}

#[test]
fn elements_only_where_they_are_allowed() {
    let unsupported = |kind: &str, at: &str| format!("unsupported type: {kind} [json-pointer:/blocks/0/{at}/type]");
    let text = json!({"type": "plain_text_input", "action_id": "t"});
    assert_eq!(wrong(&actions(&json!([text]))), unsupported("plain_text_input", "elements/0"));
    let section = json!({"type": "section", "text": plain(1), "accessory": text});
    assert_eq!(wrong(&section), unsupported("plain_text_input", "accessory"));
    assert_eq!(wrong(&input(&button(&json!({})))), unsupported("button", "element"));
    fits(
        &json!({"type": "section", "text": plain(1), "accessory": {"type": "image", "image_url": "http://x", "alt_text": "x"}}),
    );
    assert_eq!(wrong(&json!({"type": "bogus"})), "unsupported type: bogus [json-pointer:/blocks/0/type]");
}

#[test]
fn what_must_be_there_and_what_must_not() {
    assert_eq!(wrong(&json!({"text": plain(1)})), "missing required field: type [json-pointer:/blocks/0]");
    assert_eq!(wrong(&json!({"type": "section"})), "must define either `text` or `fields` [json-pointer:/blocks/0]");
    assert_eq!(wrong(&json!({"type": "header"})), "missing required field: text [json-pointer:/blocks/0]");
    assert_eq!(wrong(&json!({"type": "header", "text": "x"})), "must provide an object [json-pointer:/blocks/0/text]");
    let blank = json!({"type": "header", "text": {"type": "plain_text", "text": " \n"}});
    assert_eq!(wrong(&blank), "must be more than 0 characters [json-pointer:/blocks/0/text/text]");
    let disabled = actions(&json!([button(&json!({"disabled": true}))]));
    assert_eq!(wrong(&disabled), "invalid additional property: disabled [json-pointer:/blocks/0/elements/0]");
    let style = actions(&json!([button(&json!({"style": "default"}))]));
    assert_eq!(wrong(&style), "must be a valid enum value [json-pointer:/blocks/0/elements/0/style]");
    fits(&actions(&json!([button(&json!({"style": "danger"}))])));
    let emoji = json!({"type": "section", "text": {"type": "mrkdwn", "text": "x", "emoji": true}});
    assert_eq!(wrong(&emoji), "invalid additional property: emoji [json-pointer:/blocks/0/text]");
    let stray =
        json!({"type": "radio_buttons", "action_id": "r", "options": options(2), "initial_option": option(1, 9)});
    assert!(wrong(&input(&stray)).contains("/element/initial_option"));
}

#[test]
fn modals() {
    let view = |title: usize| {
        json!({"type": "modal", "title": plain(title), "submit": plain(24), "close": plain(24),
        "callback_id": "c".repeat(255), "private_metadata": "p".repeat(3000), "blocks": [text_input(&json!({}))]})
    };
    assert_eq!(check_view(&view(24)), Vec::<String>::new());
    assert_eq!(check_view(&view(25)), ["must be less than 25 characters [json-pointer:/view/title/text]"]);
    let mut bare = view(24);
    bare.as_object_mut().expect("a view").remove("submit");
    assert_eq!(check_view(&bare), ["missing required field: submit [json-pointer:/view]"]);
    let mut long = view(24);
    long["private_metadata"] = json!("p".repeat(3001));
    assert_eq!(check_view(&long).len(), 1);
}

#[test]
fn characters_beyond_the_basic_plane_count_twice() {
    let clef =
        |count: usize| json!({"type": "header", "text": {"type": "plain_text", "text": "\u{1D11E}".repeat(count)}});
    fits(&clef(75));
    assert!(wrong(&clef(76)).starts_with("must be less than 151 characters"));
}

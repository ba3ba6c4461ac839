"""Descriptors → what is known of messages, and the files that a registry takes."""

import base64

import pytest
from google.protobuf import descriptor_pb2

from spark_kafka_sink.formats.plan import FormatError
from spark_kafka_sink.formats.protobuf_layout import (
    indexes_in,
    read_descriptor_set,
    read_registered,
)
from spark_kafka_sink.formats.protobuf_text import file_of_text
from tests.formats.protobuf_files import (
    add_enum,
    add_field,
    add_map,
    descriptor_set,
    file_of,
    one_message,
)
from tests.tables import each_row


def base64_of(file):
    return base64.b64encode(file.SerializeToString()).decode()


def fields_of(file, name="pkg.Root"):
    schema = read_descriptor_set(descriptor_set([file]), name).schema
    return {field.name: field for message in schema.messages for field in message.fields}


def test_an_edition_says_itself_what_its_fields_are():
    if not hasattr(descriptor_pb2, "FeatureSet"):
        pytest.skip("this protobuf knows no editions")
    file = file_of(syntax="editions")
    file.edition = descriptor_pb2.Edition.EDITION_2023
    features = descriptor_pb2.FeatureSet
    root = file.message_type.add(name="Root")
    add_field(root, "given", "int32")
    add_field(root, "implicit", "int32").options.features.field_presence = features.IMPLICIT
    field = add_field(root, "must", "int32")
    field.options.features.field_presence = features.LEGACY_REQUIRED
    add_field(root, "many", "repeated int32")
    field = add_field(root, "expanded", "repeated int32")
    field.options.features.repeated_field_encoding = features.EXPANDED
    if not hasattr(descriptor_pb2.FileDescriptorSet.DESCRIPTOR.fields[0], "is_packed"):
        with pytest.raises(FormatError, match=r"for which protobuf 5\.29 is needed"):
            fields_of(file)
        return
    found = fields_of(file)
    assert [found[n].has_presence for n in ("given", "implicit")] == [True, False]
    assert found["must"].is_required
    assert [found[n].is_packed for n in ("many", "expanded")] == [True, False]


def test_messages_are_found_by_name_and_know_where_they_are():
    file = file_of()
    for name in ("First", "Second"):
        inner = file.message_type.add(name=name).nested_type.add(name="Inner")
        inner.nested_type.add(name="Deep0")
        add_field(inner.nested_type.add(name="Deep"), "x", "int32")
    data = descriptor_set([file])
    for name, indexes in (
        ("pkg.First", (0,)),
        ("Second", (1,)),
        ("pkg.Second.Inner", (1, 0)),
        ("pkg.Second.Inner.Deep", (1, 0, 1)),
    ):
        schema = read_descriptor_set(data, name).schema
        assert schema.indexes == indexes
        assert schema.root.endswith(name)


def imported_files():
    """main imports other, which imports deep; in reverse order."""
    deep = file_of("deep.proto", package="deep")
    add_field(deep.message_type.add(name="Deep"), "x", "int32")
    other = file_of("dir/other.proto", package="other")
    other.dependency.append("deep.proto")
    add_field(other.message_type.add(name="Other"), "deep", "deep.Deep")
    main = file_of("main.proto")
    main.dependency.append("dir/other.proto")
    add_field(main.message_type.add(name="Root"), "other", "other.Other")
    main.source_code_info.location.add(span=[1, 2, 3])
    return [main, other, deep]


@pytest.mark.parametrize("with_imports", [True, False])
def test_imports_are_followed_and_registered_but_for_well_known_ones(with_imports):
    main, other, deep = imported_files()
    found = read_descriptor_set(descriptor_set([main, other, deep], with_imports), "Root")
    names = {message.name for message in found.schema.messages}
    assert names == {"pkg.Root", "other.Other", "deep.Deep"}
    assert [(file.name, file.imports) for file in found.files] == [
        ("deep.proto", ()),
        ("dir/other.proto", ("deep.proto",)),
        ("main.proto", ("dir/other.proto",)),
    ]
    assert found.files[1].text == base64_of(other)
    main.ClearField("source_code_info")
    assert found.files[-1].text == base64_of(main)


def test_files_that_are_imported_on_many_ways_are_there_once():
    """Two files import both of the next layer: there are 2^60 ways to the last ones."""
    layers = [[f"{side}{depth}.proto" for side in "ab"] for depth in range(60)]
    made = []
    for depth, names in enumerate(layers):
        for name in names:
            file = file_of(name, package=name[:-6])
            file.dependency.extend(layers[depth + 1] if depth < 59 else [])
            file.message_type.add(name="M")
            made.append(file)
    found = read_descriptor_set(descriptor_set(made), "a0.M").files
    assert len(found) == 119  # all but b0
    assert found[-1].name == "a0.proto"


def test_a_long_chain_of_imports_is_followed():
    made = [file_of(f"f{number}.proto", package=f"p{number}") for number in range(2000)]
    for number, file in enumerate(made[:-1]):
        file.dependency.append(f"f{number + 1}.proto")
    made[0].message_type.add(name="M")
    assert len(read_descriptor_set(descriptor_set(made), "p0.M").files) == 2000


def test_files_that_import_each_other_are_refused():
    made = [file_of("a.proto", package="a"), file_of("b.proto", package="b")]
    made[0].dependency.append("b.proto")
    made[1].dependency.append("a.proto")
    with pytest.raises(FormatError, match=r"the descriptor of [ab]\.proto is wrong"):
        read_descriptor_set(descriptor_set(made), "M")


def test_a_file_may_be_there_twice_and_two_of_one_name_are_refused():
    """Sets may be concatenated; fields of one file would go with the index of the other one."""
    first, second = one_message(a="int32"), file_of()
    second.message_type.add(name="Other")
    add_field(second.message_type.add(name="Root"), "b", "string")
    data = descriptor_set([first])
    found = read_descriptor_set(data + data, "pkg.Root")
    assert found == read_descriptor_set(data, "pkg.Root")
    for files in ([first, second], [second, first]):
        with pytest.raises(FormatError, match=r"two files 'made\.proto', and they differ"):
            read_descriptor_set(descriptor_set(files), "pkg.Root")


def test_names_in_json_are_registered_only_where_they_are_given():
    """As in the descriptors of generated classes, which Confluent's serializers register."""
    file = file_of()
    root = file.message_type.add(name="Root")
    inner = root.nested_type.add(name="Inner")
    for message in (root, inner):
        add_field(message, "snake_case__x_", "int32", json_name="snakeCaseX")
        add_field(message, "given", "int32", json_name="other")
    found = read_descriptor_set(descriptor_set([file]), "Root").files[-1]
    for message in (root, inner):
        message.field[0].ClearField("json_name")
    assert found.text == base64_of(file)


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"syntax", "Root", "it is no descriptor set"),
        (b"", "Root", "no message 'Root': there are none"),
        (descriptor_set(imported_files()[:1]), "Root", "main.proto imports dir/other.proto, which"),
        (descriptor_set([one_message(c="int32")]), "root", "no message 'root': there are .*pkg.Root, pkg.Inner"),
        (descriptor_set([one_message(c="pkg.Nowhere")]), "Root", "the descriptor of made.proto is wrong"),
    ],
)  # fmt: skip
def test_sets_that_are_refused(data, name, message):
    with pytest.raises(FormatError, match=message):
        read_descriptor_set(data, name)


def test_a_registered_file_has_its_first_message_or_the_one_that_is_asked_for():
    main, *others = imported_files()
    add_field(main.message_type.add(name="Second"), "x", "int32")
    main.name = ""  # which registries do not keep
    imports = [(file.name, base64_of(file)) for file in others]
    found = read_registered(base64_of(main), imports, None)
    assert (found.schema.root, found.schema.indexes) == ("pkg.Root", (0,))
    assert read_registered(base64_of(main), imports, "pkg.Second").schema.indexes == (1,)
    with pytest.raises(FormatError, match="no message 'third'"):
        read_registered(base64_of(main), imports, "third")
    with pytest.raises(FormatError, match="has no message"):
        read_registered(base64_of(file_of()), (), None)


@each_row(
    "text",
    ['syntax = "proto3"; message', "YWFhYQ==", "abc", f"{base64_of(one_message(c='int32'))}{{}}"],
)
def test_text_is_no_registered_descriptor(text):
    with pytest.raises(FormatError, match="neither a FileDescriptorProto in Base64"):
        read_registered(text, (), None)


def test_a_registered_schema_has_four_mebibytes_at_most():
    """Registries keep a schema in a record, of 1 MB by default."""
    text = 'syntax = "proto3"; message M {int32 a = 1;}'
    longest = text.ljust(4 << 20)
    assert read_registered(longest, (), None).schema.root == "M"
    for given, imports in ((f"{longest} ", ()), (text, [("a.proto", f"{longest} ")])):
        with pytest.raises(FormatError, match="it is longer than 4 MiB"):
            read_registered(given, imports, None)


def with_import(name, **fields):
    file = file_of()
    file.dependency.append(name)
    root = file.message_type.add(name="Root")
    for number, (field, kind) in enumerate(fields.items(), 1):
        add_field(root, field, kind, number)
    return file


def test_a_registered_file_may_import_what_registries_know_by_themselves():
    pytest.importorskip("google.type.date_pb2")
    file = with_import("google/type/date.proto", day="google.type.Date")
    found = read_registered(base64_of(file), (), None)
    assert {message.name for message in found.schema.messages} == {"pkg.Root", "google.type.Date"}
    assert [file.imports for file in found.files] == [()]
    found = read_registered(base64_of(with_import("confluent/meta.proto", x="int32")), (), None)
    assert found.schema.root == "pkg.Root"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("google/type/nowhere.proto", "references of the schema, or the Python package googleapis-"),
        ("confluent/nowhere.proto", "or the Python package 'confluent-kafka.protobuf.' on the"),
        ("air/crew.proto", "the registry does not tell it among the references of the schema "),
    ],
)  # fmt: skip
def test_an_import_of_a_registered_file_that_is_not_there(name, words):
    with pytest.raises(FormatError, match=words) as refused:
        read_registered(base64_of(with_import(name)), (), None)
    assert "protoc" not in str(refused.value)


def files_with_one_name():
    """imported.proto, and main.proto, which imports it: both have a message Root."""
    imported = file_of("imported.proto", package="common")
    add_field(imported.message_type.add(name="Root"), "x", "int32")
    add_field(imported.message_type.add(name="Duration"), "x", "int32")
    main = file_of("main.proto")
    main.dependency.append("imported.proto")
    add_field(main.message_type.add(name="Root"), "other", "common.Root")
    return [imported, main]


def test_a_name_that_two_files_have_must_be_whole():
    data = descriptor_set(files_with_one_name())
    with pytest.raises(FormatError, match=r"more than one message 'Root': common\.Root, pkg\.Root"):
        read_descriptor_set(data, "Root")
    assert read_descriptor_set(data, "pkg.Root").schema.root == "pkg.Root"
    assert read_descriptor_set(data, "Duration").schema.root == "common.Duration"


@pytest.mark.parametrize("name", ["common.Root", "Duration", "google.protobuf.Duration"])
def test_a_message_of_an_imported_file_is_refused(name):
    """Its indexes would be looked for in the schema whose id goes before it: another message."""
    imported, main = files_with_one_name()
    imports = [(imported.name, base64_of(imported))]
    assert read_registered(base64_of(main), imports, "Root").schema.root == "pkg.Root"
    with pytest.raises(FormatError, match=r"is one of .*\.proto, which the schema imports\."):
        read_registered(base64_of(main), imports, name)


def with_map_before():
    """pkg.Root.Inner and pkg.Root.Deep.Inner stand behind entries of maps."""
    file = file_of()
    file.message_type.add(name="First")
    root = file.message_type.add(name="Root")
    add_map(root, "seats", "string", "int32")
    deep = root.nested_type.add(name="Deep")
    root.nested_type.add(name="Inner")
    deep.nested_type.add(name="Inner")
    return file


AS_TEXT = """
// message Commented { } package wrong;
syntax = "proto3"; package pkg;
option (of.all) = { message: "message Quoted {", kind: message inner { message: 'it\\'s {' } };
/* message Hidden { */
message First { oneof message { int32 a = 1; } enum Kind { message = 0; } string package = 2; }
extend google.protobuf.MessageOptions { string note = 50000; }
message
  Root { map<string, int32> seats = 1;
  message Deep { message Inner {} }
  optional group Legs = 2 { int32 x = 1; }
  message Inner { First message = 1; } }
service message { rpc message (First) returns (Root) { } }
"""


@pytest.mark.parametrize(
    ("name", "in_text", "in_descriptor"),
    [
        ("pkg.First", (0,), (0,)),
        ("pkg.Root", (1,), (1,)),
        ("pkg.Root.Deep", (1, 0), (1, 1)),
        ("pkg.Root.Inner", (1, 1), (1, 2)),
        ("pkg.Root.Deep.Inner", (1, 0, 0), (1, 1, 0)),
    ],
)
def test_messages_are_counted_as_the_registry_has_them(name, in_text, in_descriptor):
    assert indexes_in(AS_TEXT, name) == in_text
    assert indexes_in(base64_of(with_map_before()), name) == in_descriptor
    found = read_descriptor_set(descriptor_set([with_map_before()]), name)
    assert found.schema.indexes == in_descriptor
    assert found.follows_map is (in_text != in_descriptor)


@pytest.mark.parametrize(
    "name", ["pkg.Hidden", "Root", "abc.Root", "other.Root", "pkg.Root.Legs", "pkg"]
)
def test_a_message_that_the_registrys_schema_does_not_define(name):
    with pytest.raises(
        FormatError, match=f"no message '{name}': there are pkg.First, pkg.Root \\["
    ):
        indexes_in(AS_TEXT, name)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_an_unclosed_string_of_a_text_is_read_once(quote):
    """It ends with its line. Read again from each of its quotes, it would take quadratic time."""
    escaped = "\\" + quote
    text = f"message A {{}} option x = {quote}{escaped} message B {{}} {escaped}\n; message C {{}}"
    assert indexes_in(text, "C") == (1,)


def test_an_unclosed_comment_of_a_text_is_read_once():
    text = "message A {} /* message B {} /* message C {}"
    for name in ("B", "C"):
        with pytest.raises(FormatError, match=f"no message '{name}': there are A \\["):
            indexes_in(text, name)


def test_messages_of_a_text_without_a_package():
    assert indexes_in("message A { message B {} }", "A.B") == (0, 0)
    assert indexes_in("message package {} message A {}", "A") == (1,)
    with pytest.raises(FormatError, match="'}' begins no declaration"):
        indexes_in("} no schema {", "A")


TEXTS = {
    "proto3": """syntax = "proto3"; package pkg; import public "b.proto"; import "c.proto";
    option java_package = "x.y"; option (of.all) = { message: "message Q {", many: [{a: 1}, {}] };
    message Root {
      int64 plain = 1 [json_name = "p", (of.field) = { packed: true }]; optional string given = 0x2;
      repeated sint32 many = 3; repeated fixed64 apart = 4 [deprecated = true, packed=false];
      map<string, other.Home> homes_by_name = 05; .pkg.Root.Kind kind = 6; Inner inner = 7;
      oneof choice { option (of.one) = 1; bool a = 8; bytes b = 9; } reserved 10 to 12, 100 to max;
      enum Kind { option allow_alias = true; reserved -5; ZERO = 0; ONE = 1 [(of.value) = "x;"]; ALSO = 1; LOW = -2; }
      message Inner { Kind kind = 1; Work work = 2; google.protobuf.Timestamp at = 3; } reserved "z"; }
    service S { rpc A (Root) returns (stream Root) { option (x) = "y"; } }""",
    "proto2": """package pkg; import 'c.proto';
    message Root { required int32 must = 1; optional float x = 2 [default = -1.5]; ;
      repeated Kind kinds = 3 [packed = true]; extensions 100 to 199; optional group Legs = 4 { optional int32 y = 1; }
      extend Root { optional int32 more = 100; } enum Kind { A = 1; B = 2; } optional Work work = 5; }
    extend Root { optional int32 others = 101; }""",
}  # fmt: skip


def same_as_text(syntax):
    """The files whose texts are TEXTS, but for groups."""
    file = file_of("main.proto", syntax=syntax)
    root = file.message_type.add(name="Root")
    if syntax == "proto2":
        add_field(root, "must", "required int32", 1)
        add_field(root, "x", "float", 2)
        add_field(root, "kinds", "repeated enum pkg.Root.Kind", 3).options.packed = True
        add_field(root, "work", "pkg.Work", 5)
        add_enum(root, "Kind", A=1, B=2)
        return file
    add_field(root, "plain", "int64", 1)
    for name in ("choice", "_given"):
        root.oneof_decl.add(name=name)
    add_field(root, "given", "string", 2, proto3_optional=True, oneof_index=1)
    add_field(root, "many", "repeated sint32", 3)
    add_field(root, "apart", "repeated fixed64", 4).options.packed = False
    add_map(root, "homes_by_name", "string", "other.Home").number = 5
    add_field(root, "kind", "enum pkg.Root.Kind", 6)
    add_field(root, "inner", "pkg.Root.Inner", 7)
    add_field(root, "a", "bool", 8, oneof_index=0)
    add_field(root, "b", "bytes", 9, oneof_index=0)
    add_enum(root, "Kind", ZERO=0, ONE=1, ALSO=1, LOW=-2)
    root.enum_type[0].options.allow_alias = True
    inner = root.nested_type.add(name="Inner")
    add_field(inner, "kind", "enum pkg.Root.Kind", 1)
    add_field(inner, "work", "pkg.Work", 2)
    add_field(inner, "at", "google.protobuf.Timestamp", 3)
    return file


@pytest.mark.parametrize("syntax", TEXTS)
def test_a_text_is_what_its_descriptor_is(syntax):
    """The fields that decide the bytes, of all messages; those of imported files are texts, too."""
    home = 'syntax = "proto3"; package other; message Home { string city = 1; }'
    work = 'syntax = "proto3"; package pkg; message Work { uint32 hours = 1; }'
    imports = (("b.proto", home), ("c.proto", work))
    text = TEXTS[syntax].replace(
        "package pkg;", "package pkg; import 'google/protobuf/timestamp.proto';"
    )
    found = read_registered(text, imports, "pkg.Root").schema
    file = same_as_text(syntax)
    file.dependency.extend(["b.proto", "c.proto", "google/protobuf/timestamp.proto"])
    texts = [(name, base64_of(file_of_text(other))) for name, other in imports]
    expected = read_registered(base64_of(file), texts, "pkg.Root").schema
    assert (found.root, found.enums, found.indexes) == expected[:1] + expected[2:]
    oneofs = {field.name: field.oneof for message in expected.messages for field in message.fields}
    assert (oneofs.get("a", "choice"), oneofs.get("given", "")) == ("choice", "")
    by_name = {message.name: set(message.fields) for message in expected.messages}
    assert {message.name: set(message.fields) for message in found.messages} == by_name


@each_row(
    ("text", "words"),
    [
        ('edition = "2023"; message A {}', "is the text of an edition"),
        ("message A { required group B = 1 {} }", "a required field is a group"),
        ("message A { int32 a = b; }", "invalid literal for int"),
        ("message A { int32 a 1; }", "'1' stands where '=' must be"),
        ("message A { int32 a = 1 [x = {;", "in the middle of a declaration"),
        ("message A { Missing a = 1; }", "Missing"),
        ("message A {" * 5_000, "nested in more than"),
        ("message A { int32 a = 99999999999; }", "neither"),
        (f"message A {{ int32 a = {'-' * 5_000}1; }}", "invalid literal for int"),
    ],
)
def test_texts_that_are_refused(text, words):
    with pytest.raises(FormatError, match=words):
        read_registered(text, (), None)

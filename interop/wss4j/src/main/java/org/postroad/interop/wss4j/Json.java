package org.postroad.interop.wss4j;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON to maps, lists, strings, numbers and booleans, and back. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object parse(String text) {
        Json reader = new Json(text);
        Object value = reader.value();
        if (reader.next() != 0) {
            throw reader.unexpected();
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value() {
        switch (next()) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            default:
                return literal();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        expect('{');
        while (next() != '}') {
            String name = string();
            expect(':');
            found.put(name, value());
            if (next() != '}') {
                expect(',');
            }
        }
        at++;
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        expect('[');
        while (next() != ']') {
            found.add(value());
            if (next() != ']') {
                expect(',');
            }
        }
        at++;
        return found;
    }

    private String string() {
        expect('"');
        StringBuilder found = new StringBuilder();
        while (text.charAt(at) != '"') {
            char one = text.charAt(at++);
            found.append(one == '\\' ? escaped() : one);
        }
        at++;
        return found.toString();
    }

    private char escaped() {
        char one = text.charAt(at++);
        switch (one) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default:
                return one;
        }
    }

    private Object literal() {
        int start = at;
        while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String found = text.substring(start, at);
        switch (found) {
            case "true":
                return Boolean.TRUE;
            case "false":
                return Boolean.FALSE;
            case "null":
                return null;
            default:
                return found.matches("-?[0-9]+") ? (Object) Long.valueOf(found) : Double.valueOf(found);
        }
    }

    /** Returns the next character that is not white space without consuming it; 0 at the end. */
    private char next() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private void expect(char wanted) {
        if (next() != wanted) {
            throw unexpected();
        }
        at++;
    }

    private IllegalArgumentException unexpected() {
        return new IllegalArgumentException("Unexpected JSON at character " + at);
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(separator);
                write(entry.getKey().toString(), out);
                out.append(':');
                write(entry.getValue(), out);
                separator = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> list) {
            String separator = "";
            out.append('[');
            for (Object one : list) {
                out.append(separator);
                write(one, out);
                separator = ",";
            }
            out.append(']');
        } else if (value instanceof String string) {
            out.append('"');
            for (char one : string.toCharArray()) {
                if (one < ' ' || one == '"' || one == '\\') {
                    out.append(String.format("\\u%04x", (int) one));
                } else {
                    out.append(one);
                }
            }
            out.append('"');
        } else {
            out.append(value);
        }
    }
}

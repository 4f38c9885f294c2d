// A textarea with line numbers, colours and marks: what is seen lies under it, and it scrolls with its frame.
//
// Marks are {line, column, end_column}, counted from 1 in characters (Unicode), as the server gives them.

const MAX_COLOURED_CHARS = 32768;
const INDENT = "  ";
const TOKENS =
  /(^#.*|\s#.*)|("(?:[^"\\]|\\.)*"|'[^']*')|([A-Za-z_][\w.-]*)(?=\s*:)|(?<![\w.])(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])|\b(true|false|null)\b/g;
const KINDS = ["", "comment", "text", "key", "number", "word"];

export class Editor {
  #root;
  #area;
  #gutter;
  #paper;
  #marks = [];
  #leaving = false;

  constructor(root) {
    this.#root = root;
    this.#area = root.querySelector("textarea");
    this.#gutter = root.querySelector(".editor-gutter");
    this.#paper = root.querySelector(".editor-paper");
    this.#area.addEventListener("input", () => this.#draw());
    this.#area.addEventListener("keydown", (event) => this.#key(event));
    this.#area.addEventListener("blur", () => (this.#leaving = false));
    root.classList.add("drawn");
    this.#draw();
  }

  get text() {
    return this.#area.value;
  }

  set text(text) {
    this.#area.value = text;
    this.#draw();
  }

  onInput(call) {
    this.#area.addEventListener("input", call);
  }

  // Show where something is wrong; none: all is right.
  mark(marks) {
    this.#marks = marks;
    this.#area.setAttribute("aria-invalid", String(marks.length > 0));
    this.#draw();
  }

  // Put the caret there, with what is wrong selected.
  select({ line, column, end_column }) {
    const lines = this.text.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const text = lines[line - 1] ?? "";
    this.#area.focus();
    this.#area.setSelectionRange(begin + offset(text, column), begin + offset(text, end_column));
    const height = this.#area.clientHeight / lines.length;
    this.#root.scrollTop = Math.max(0, (line - 4) * height);
    this.#root.scrollLeft = 0;
  }

  #key(event) {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (key === "Escape") this.#leaving = true;
    else if (key === "Tab" && !this.#leaving) {
      event.preventDefault();
      this.#indent(event.shiftKey);
    } else if (key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#insert("\n" + this.#lineBefore().match(/^ */)[0] + (this.#lineBefore().endsWith(":") ? INDENT : ""));
    } else if (key !== "Shift" && key !== "Tab") this.#leaving = false;
  }

  #lineBefore() {
    const before = this.text.slice(0, this.#area.selectionStart);
    return before.slice(before.lastIndexOf("\n") + 1);
  }

  #indent(back) {
    const { selectionStart: start, selectionEnd: end } = this.#area;
    if (start === end && !back) {
      this.#insert(INDENT);
      return;
    }
    const first = this.text.lastIndexOf("\n", start - 1) + 1;
    const lines = this.text.slice(first, end).split("\n");
    const changed = lines.map((line) => (back ? line.replace(/^ {1,2}/, "") : INDENT + line)).join("\n");
    if (changed === lines.join("\n")) return;
    const moved = changed.length - (end - first);
    this.#area.setSelectionRange(first, end);
    this.#insert(changed);
    if (start === end) this.#area.setSelectionRange(Math.max(first, start + moved), Math.max(first, start + moved));
    else this.#area.setSelectionRange(first, first + changed.length);
  }

  // As typed: Ctrl+Z takes it back.
  #insert(text) {
    if (document.execCommand("insertText", false, text)) return;
    const { selectionStart: start, selectionEnd: end } = this.#area;
    this.#area.setRangeText(text, start, end, "end");
    this.#area.dispatchEvent(new Event("input"));
  }

  #draw() {
    const lines = this.text.split("\n");
    const marked = Map.groupBy ? Map.groupBy(this.#marks, (mark) => mark.line) : grouped(this.#marks);
    const coloured = this.text.length <= MAX_COLOURED_CHARS;
    const paper = document.createDocumentFragment();
    const gutter = document.createDocumentFragment();
    lines.forEach((line, index) => {
      const marks = marked.get(index + 1) ?? [];
      paper.append(...pieces(line, coloured, marks), "\n");
      gutter.append(marks.length ? piece(String(index + 1), "bad") : String(index + 1), "\n");
    });
    this.#paper.replaceChildren(paper);
    this.#gutter.replaceChildren(gutter);
  }
}

function grouped(marks) {
  const found = new Map();
  for (const mark of marks) found.set(mark.line, [...(found.get(mark.line) ?? []), mark]);
  return found;
}

// A place in a line, from characters to what JavaScript counts.
function offset(line, column) {
  return [...line].slice(0, column - 1).join("").length;
}

function piece(text, name) {
  const made = document.createElement("span");
  made.className = name;
  made.textContent = text;
  return made;
}

// A line cut where a colour or a mark begins or ends.
function pieces(line, coloured, marks) {
  const tokens = coloured ? [...line.matchAll(TOKENS)] : [];
  const spans = tokens.map((found) => [found.index, found.index + found[0].length, KINDS[found.findIndex((part, at) => at > 0 && part)]]);
  // What is missing has a line and no place in it.
  const wrong = marks.filter((mark) => !mark.field || mark.end_column > mark.column).map((mark) => {
    const begin = Math.min(offset(line, mark.column), Math.max(0, line.length - 1));
    return [begin, Math.max(begin + 1, offset(line, mark.end_column)), "wrong"];
  });
  const shown = line === "" && wrong.length ? " " : line;
  const cuts = [...new Set([0, shown.length, ...[...spans, ...wrong].flatMap(([begin, end]) => [begin, end])])];
  cuts.sort((one, other) => one - other);
  return cuts.slice(1).map((end, index) => {
    const begin = cuts[index];
    const names = [...spans, ...wrong].filter(([from, to]) => from <= begin && end <= to).map(([, , name]) => name);
    const text = shown.slice(begin, end);
    return names.length ? piece(text, names.join(" ")) : text;
  });
}

// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Metric is a metric as its program's source makes it.
type Metric struct {
	Name, Type, Help string
	Labels           []string

	from place
}

// Program is a program with metrics of its own.
type Program struct {
	Name    string
	Metrics []Metric
}

const (
	module     = "github.com/substorm/substorm"
	prometheus = "github.com/prometheus/client_golang/prometheus"
	promauto   = prometheus + "/promauto"
)

// Programs reads the metrics of the programs in the checkout at root out of their source: every call that makes one, in the
// packages that the program imports. Names, helps and labels may be parameters of a function that makes several.
func Programs(root string, names ...string) ([]Program, error) {
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, "./"+name+"/...")
	}
	loaded, err := packages.Load(&packages.Config{Dir: root, Mode: packages.LoadSyntax}, append(patterns, "./internal/...")...)
	if err != nil {
		return nil, err
	}
	s := newSource(loaded)
	var all []Metric
	for _, p := range loaded {
		for _, e := range p.Errors {
			return nil, e
		}
		found, err := s.metrics(p)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	byPath := map[string]*packages.Package{}
	for _, p := range loaded {
		byPath[p.PkgPath] = p
	}
	var programs []Program
	for _, name := range names {
		main := byPath[module+"/"+name+"/cmd"]
		if main == nil {
			return nil, fmt.Errorf("%s has no package cmd", name)
		}
		programs = append(programs, Program{Name: name, Metrics: s.of(all, main)})
	}
	for _, m := range all {
		served := func(p Program) bool {
			return slices.ContainsFunc(p.Metrics, func(of Metric) bool { return of.Name == m.Name })
		}
		if !slices.ContainsFunc(programs, served) {
			return nil, fmt.Errorf("metric %s is served by none of %s: no call leads to where it is made", m.Name, strings.Join(names, ", "))
		}
	}
	return programs, nil
}

// of are the metrics of a program, by name, each once: those that code makes to which calls lead from its packages.
func (s *source) of(all []Metric, main *packages.Package) (found []Metric) {
	paths := imports(main, map[string]bool{})
	reached := s.reached(main.Types.Scope().Lookup("main"))
	for _, m := range all {
		if m.from.function == nil && paths[m.from.pkg] || reached[m.from.function] {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(found, func(a, b Metric) bool { return a.Name == b.Name })
}

func imports(p *packages.Package, seen map[string]bool) map[string]bool {
	if seen[p.PkgPath] || !strings.HasPrefix(p.PkgPath, module) {
		return seen
	}
	seen[p.PkgPath] = true
	for _, to := range p.Imports {
		imports(to, seen)
	}
	return seen
}

// MetricsPage describes the metrics of programs.
func MetricsPage(programs []Program) string {
	out := &strings.Builder{}
	out.WriteString("# Metrics\n\nEach program serves them to Prometheus under `/metrics` and adds those of the Go runtime and its process (`go_*`, `process_*`); " +
		"the operator adds those of controller-runtime.\n")
	for _, p := range programs {
		fmt.Fprintf(out, "\n## %s\n\n%s", p.Name, head("Metric", "Type", "Labels", "Description"))
		for _, m := range p.Metrics {
			var labels []string
			for _, l := range m.Labels {
				labels = append(labels, code(l))
			}
			out.WriteString(row(code(m.Name), m.Type, strings.Join(labels, ", "), cell(m.Help)))
		}
	}
	return out.String()
}

// source is what is known of the source of all packages.
type source struct {
	info  types.Info
	calls map[types.Object][]call // of a function, or of a variable that holds one
	owner map[types.Object]owner  // the function that a parameter belongs to
	value map[types.Object]ast.Expr
	names map[types.Object][]types.Object // functions that a function names
}

type call struct {
	*ast.CallExpr

	at place
}

// place is where code stands. Outside of functions there is none.
type place struct {
	function types.Object
	pkg      string
}

type owner struct {
	function types.Object
	params   []types.Object
	variadic bool
}

// scope says what the parameters of functions are given: of the one around a metric, of its caller, and so on.
type scope map[types.Object][]ast.Expr

// unboundError is a parameter of a function whose calls say what it is.
type unboundError struct{ param types.Object }

func (e unboundError) Error() string { return "parameter " + e.param.Name() + " is not bound" }

func newSource(loaded []*packages.Package) *source {
	s := &source{names: map[types.Object][]types.Object{}, calls: map[types.Object][]call{}, owner: map[types.Object]owner{}, value: map[types.Object]ast.Expr{},
		info: types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	for _, p := range loaded {
		maps.Copy(s.info.Types, p.TypesInfo.Types)
		maps.Copy(s.info.Uses, p.TypesInfo.Uses)
		maps.Copy(s.info.Defs, p.TypesInfo.Defs)
	}
	for _, p := range loaded {
		s.each(p, func(n ast.Node, at place) bool { s.index(n, at); return true })
	}
	return s
}

// each calls a function with each node of a package.
func (s *source) each(p *packages.Package, do func(ast.Node, place) bool) {
	for _, file := range p.Syntax {
		for _, decl := range file.Decls {
			at := place{pkg: p.PkgPath}
			if f, ok := decl.(*ast.FuncDecl); ok {
				at.function = s.info.Defs[f.Name]
			}
			ast.Inspect(decl, func(n ast.Node) bool { return do(n, at) })
		}
	}
}

// reached are the functions that one names, that these name, and so on.
func (s *source) reached(from types.Object) map[types.Object]bool {
	seen, next := map[types.Object]bool{from: true}, []types.Object{from}
	for len(next) > 0 {
		f := next[0]
		next = next[1:]
		for _, to := range s.names[f] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}

func (s *source) index(n ast.Node, at place) {
	switch n := n.(type) {
	case *ast.Ident:
		if f, ok := s.info.Uses[n].(*types.Func); ok && at.function != nil {
			s.names[at.function] = append(s.names[at.function], f)
		}
	case *ast.CallExpr:
		if f := s.callee(n); f != nil {
			s.calls[f] = append(s.calls[f], call{n, at})
		}
	case *ast.FuncDecl:
		s.own(s.info.Defs[n.Name], n.Type)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE && len(n.Lhs) == len(n.Rhs) {
			for i := range n.Lhs {
				s.define(n.Lhs[i], n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) {
			for i := range n.Names {
				s.define(n.Names[i], n.Values[i])
			}
		}
	}
}

func (s *source) define(name, value ast.Expr) {
	ident, ok := name.(*ast.Ident)
	if !ok {
		return
	}
	object := s.info.Defs[ident]
	if f, ok := value.(*ast.FuncLit); ok {
		s.own(object, f.Type)
	}
	s.value[object] = value
}

// own notes the parameters of a function.
func (s *source) own(function types.Object, of *ast.FuncType) {
	o := owner{function: function}
	for _, field := range of.Params.List {
		_, o.variadic = field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			o.params = append(o.params, s.info.Defs[name])
		}
	}
	for _, p := range o.params {
		s.owner[p] = o
	}
}

func (s *source) callee(c *ast.CallExpr) types.Object {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return s.info.Uses[f]
	case *ast.SelectorExpr:
		return s.info.Uses[f.Sel]
	}
	return nil
}

// metrics are those that a package makes.
func (s *source) metrics(p *packages.Package) (found []Metric, err error) {
	s.each(p, func(n ast.Node, at place) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || err != nil {
			return err == nil
		}
		f, ok := s.callee(c).(*types.Func)
		if !ok || f.Pkg() == nil || f.Pkg().Path() != prometheus && f.Pkg().Path() != promauto || !constructor(f.Name()) {
			return true
		}
		var made []Metric
		if made, err = s.made(call{c, at}, f.Name(), scope{}); err != nil {
			err = fmt.Errorf("%s: cannot tell which metrics prometheus.%s makes: %w", p.Fset.Position(c.Pos()), f.Name(), err)
		}
		found = append(found, made...)
		return true
	})
	return found, err
}

func constructor(name string) bool {
	return name == "NewDesc" || strings.HasPrefix(name, "NewCounter") || strings.HasPrefix(name, "NewGauge") ||
		strings.HasPrefix(name, "NewHistogram") || strings.HasPrefix(name, "NewSummary")
}

// made are the metrics of one call: one, or one for each call of the function around it.
func (s *source) made(c call, constructor string, in scope) ([]Metric, error) {
	m, err := s.metric(c.CallExpr, constructor, in)
	var unbound unboundError
	if !errors.As(err, &unbound) {
		m.from = c.at
		return []Metric{m}, err
	}
	function := s.owner[unbound.param]
	var all []Metric
	for _, from := range s.calls[function.function] {
		with := maps.Clone(in)
		for i, p := range function.params {
			args := from.Args[min(i, len(from.Args)):]
			if (!function.variadic || i < len(function.params)-1) && len(args) > 1 {
				args = args[:1]
			}
			with[p] = args
		}
		found, err := s.made(call{c.CallExpr, from.at}, constructor, with)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w, and nothing calls its function", unbound)
	}
	return all, nil
}

func (s *source) metric(c *ast.CallExpr, constructor string, in scope) (m Metric, err error) {
	name, help, labels := ast.Expr(nil), ast.Expr(nil), ast.Expr(nil)
	if constructor == "NewDesc" {
		name, help, labels = c.Args[0], c.Args[1], c.Args[2]
	} else {
		options, ok := c.Args[0].(*ast.CompositeLit)
		if !ok {
			return m, errors.New("its options are no literal")
		}
		for _, e := range options.Elts {
			switch pair := e.(*ast.KeyValueExpr); pair.Key.(*ast.Ident).Name {
			case "Name":
				name = pair.Value
			case "Help":
				help = pair.Value
			case "ConstLabels":
				if m.Labels, err = s.keys(pair.Value, in); err != nil {
					return m, err
				}
			}
		}
		if strings.HasSuffix(constructor, "Vec") {
			labels = c.Args[1]
		}
	}
	if m.Name, err = s.text(name, in); err != nil {
		return m, err
	}
	if m.Help, err = s.text(help, in); err != nil {
		return m, err
	}
	if labels != nil {
		more, err := s.texts([]ast.Expr{labels}, in)
		if err != nil {
			return m, err
		}
		m.Labels = append(m.Labels, more...)
	}
	m.Type = typeOfMetric(constructor, m.Name)
	return m, nil
}

// keys are those of a literal of a map, or of a variable that holds one.
func (s *source) keys(e ast.Expr, in scope) (all []string, err error) {
	if name, ok := e.(*ast.Ident); ok {
		e = s.value[s.info.Uses[name]]
	}
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil, errors.New("its constant labels are no literal")
	}
	for _, element := range literal.Elts {
		key, err := s.text(element.(*ast.KeyValueExpr).Key, in)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// typeOfMetric returns the metric type of a constructor. A Desc has none; there the name determines it, by Prometheus's conventions.
func typeOfMetric(constructor, name string) string {
	if constructor == "NewDesc" {
		if strings.HasSuffix(name, "_total") {
			return "counter"
		}
		return "gauge"
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(constructor, "New"), "Vec"), "Func"))
}

// text is a string of the source.
func (s *source) text(e ast.Expr, in scope) (string, error) {
	if v := s.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v), nil
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		left, err := s.text(e.X, in)
		if err != nil {
			return "", err
		}
		right, err := s.text(e.Y, in)
		return left + right, err
	case *ast.SelectorExpr:
		return s.field(e, in)
	case *ast.Ident:
		object := s.info.Uses[e]
		if b, ok := in[object]; ok && len(b) == 1 {
			return s.text(b[0], in)
		}
		if _, ok := s.owner[object]; ok {
			return "", unboundError{object}
		}
		if v, ok := s.value[object]; ok {
			return s.text(v, in)
		}
	}
	return "", fmt.Errorf("%s is no string that can be read", types.ExprString(e))
}

// field is a string in the literal of a struct that a parameter is.
func (s *source) field(e *ast.SelectorExpr, in scope) (string, error) {
	name, ok := e.X.(*ast.Ident)
	if !ok {
		return "", fmt.Errorf("%s is no string that can be read", types.ExprString(e))
	}
	object := s.info.Uses[name]
	b, ok := in[object]
	if _, parameter := s.owner[object]; !ok && parameter {
		return "", unboundError{object}
	}
	if ok && len(b) == 1 {
		if literal, ok := b[0].(*ast.CompositeLit); ok {
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok && types.ExprString(pair.Key) == e.Sel.Name {
					return s.text(pair.Value, in)
				}
			}
		}
	}
	return "", fmt.Errorf("%s is no string that can be read", types.ExprString(e))
}

// texts are strings of the source: arguments, literals of a slice, or a variable that holds one.
func (s *source) texts(exprs []ast.Expr, in scope) (all []string, err error) {
	for _, e := range exprs {
		var found []string
		switch of := e.(type) {
		case *ast.CompositeLit:
			found, err = s.texts(of.Elts, in)
		case *ast.CallExpr:
			if name, ok := of.Fun.(*ast.Ident); !ok || name.Name != "append" {
				return nil, fmt.Errorf("%s are no strings that can be read", types.ExprString(e))
			}
			found, err = s.texts(of.Args, in)
		case *ast.Ident:
			object := s.info.Uses[of]
			b, known := in[object]
			_, parameter := s.owner[object]
			v, variable := s.value[object]
			switch {
			case of.Name == "nil":
			case known:
				found, err = s.texts(b, in)
			case parameter:
				err = unboundError{object}
			case variable:
				found, err = s.texts([]ast.Expr{v}, in)
			default:
				found, err = s.one(e, in)
			}
		default:
			found, err = s.one(e, in)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (s *source) one(e ast.Expr, in scope) ([]string, error) {
	text, err := s.text(e, in)
	return []string{text}, err
}

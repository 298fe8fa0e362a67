package web

import (
	"net/http"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/assign/hook"
)

// hooksOf is for whoever may see or change web hooks: managers those of a task, administrators those of all tasks. Under --auth
// dev there are no administrators, and managers may do both.
func hooksOf(r *http.Request) (own, global bool, err error) {
	c := CallerOf(r)
	own = c.Role == Manager
	global = c.Admin || c.By == "dev" && own
	if !own && !global {
		return false, false, notYourRole(c, []Role{Manager})
	}
	return own, global, nil
}

func mayHook(r *http.Request) (hook.May, error) {
	own, global, err := hooksOf(r)
	return func(all bool) error {
		switch {
		case all && !global:
			return assign.Refuse(assign.Forbidden, "this web hook is told of all tasks, and only administrators may do that; name a task")
		case !all && !own:
			return notYourRole(CallerOf(r), []Role{Manager})
		}
		return nil
	}, err
}

// withHook finds a hook's id in the path.
func withHook(h func(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		may, err := mayHook(r)
		if err != nil {
			return err
		}
		id, err := number(r, "id")
		if err != nil {
			return err
		}
		return h(w, r, id, may)
	}
}

func (s *server) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	own, global, err := hooksOf(r)
	if err != nil {
		return err
	}
	v, err := parameters(r)
	if err != nil {
		return err
	}
	if !isText(v.Get("task")) {
		return refuseField("task", "task is UTF-8 text without NUL")
	}
	hooks, err := s.Hooks.List(r.Context(), hook.Which{Tasks: taskNames(v), Own: own, Global: global})
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"webhooks": append([]assign.Webhook{}, hooks...)})
}

// createWebhook answers 201 with the secret, the only time that it is shown.
func (s *server) createWebhook(w http.ResponseWriter, r *http.Request) error {
	may, err := mayHook(r)
	if err != nil {
		return err
	}
	var body assign.NewWebhook
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if err := may(body.Task == nil); err != nil {
		return err
	}
	made, secret, err := s.Hooks.Create(r.Context(), body, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, http.StatusCreated, struct {
		Secret string `json:"secret"`
		assign.Webhook
	}{secret, made})
}

func (s *server) deleteWebhook(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error {
	if err := s.Hooks.Delete(r.Context(), id, may); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// testWebhook answers 202 with the delivery of a test event, which any node sends at once.
func (s *server) testWebhook(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error {
	if err := decodeIfAny(w, r, &struct{}{}); err != nil {
		return err
	}
	delivery, err := s.Hooks.Test(r.Context(), id, may)
	if err != nil {
		return err
	}
	return answer(w, http.StatusAccepted, map[string]string{"delivery": strconv.FormatInt(delivery, 10)})
}

// rotateWebhook answers with a new secret, the only time that it is shown.
func (s *server) rotateWebhook(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error {
	body := struct {
		Keep assign.Duration `json:"keep"`
	}{assign.Duration(24 * time.Hour)}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	secret, until, err := s.Hooks.Rotate(r.Context(), id, time.Duration(body.Keep), may)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, http.StatusOK, struct {
		Secret      string     `json:"secret"`
		FormerUntil *time.Time `json:"former_until"`
	}{secret, until})
}

func (s *server) listDeliveries(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	all, more, err := readPage(limit, func(limit int) ([]assign.Delivery, error) {
		return s.Hooks.Deliveries(r.Context(), id, v.Get("state"), before, limit, may)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "deliveries", all, more, func(d assign.Delivery) int64 { return d.ID })
}

func (s *server) redriveWebhook(w http.ResponseWriter, r *http.Request, id int64, may hook.May) error {
	wrong := refuseField("deliveries", "deliveries are ids, as the list of deliveries has them")
	body := struct {
		Deliveries *[]string `json:"deliveries"`
	}{new([]string)}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	if body.Deliveries == nil { // null, by which a program hardly means all of them
		return wrong
	}
	var ids []int64
	if *body.Deliveries != nil {
		ids = []int64{}
	}
	for _, text := range *body.Deliveries {
		one, err := strconv.ParseInt(text, 10, 64)
		if err != nil || one < 1 {
			return wrong
		}
		ids = append(ids, one)
	}
	n, err := s.Hooks.Redrive(r.Context(), id, ids, may)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]int64{"count": n})
}

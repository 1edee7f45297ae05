terraform import sallyport_domain.app app.example.com
